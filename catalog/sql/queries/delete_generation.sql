-- Forget one generation of a task.
-- Parameters: task_id bigint, number integer
delete from generation where task_id = :task_id and number = :number
