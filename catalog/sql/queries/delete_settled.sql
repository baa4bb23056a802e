-- Forget how far a task's order is drawn.
-- Parameters: task_id bigint
delete from settled where task_id = :task_id
