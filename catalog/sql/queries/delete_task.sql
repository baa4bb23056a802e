-- Forget a task; its id is not given out again.
-- Parameters: task_id bigint
delete from task where task_id = :task_id
