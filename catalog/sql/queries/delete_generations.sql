-- Forget a task's generations.
-- Parameters: task_id bigint
delete from generation where task_id = :task_id
