-- Forget a task's uses.
-- Parameters: task_id bigint
delete from object_use where task_id = :task_id
