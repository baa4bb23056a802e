-- Forget the orders of a task that are recorded by their digests.
-- Parameters: task_id bigint
delete from epoch_order where task_id = :task_id
