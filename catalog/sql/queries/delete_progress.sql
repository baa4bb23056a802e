-- Forget where a task was.
-- Parameters: task_id bigint
delete from task_progress where task_id = :task_id
