-- Forget a task's uses of policies.
-- Parameters: task_id bigint
delete from substitution where task_id = :task_id
