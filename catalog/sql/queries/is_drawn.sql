-- Whether an epoch of a task has an order.
-- Parameters: task_id bigint, epoch integer
-- Columns: is_drawn boolean
select
    exists (select * from draw where task_id = :task_id and epoch = :epoch)
    or exists (select * from epoch_order where task_id = :task_id and epoch = :epoch) as is_drawn
