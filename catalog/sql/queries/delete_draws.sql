-- Forget a task's recorded order.
-- Parameters: task_id bigint
delete from draw where task_id = :task_id
