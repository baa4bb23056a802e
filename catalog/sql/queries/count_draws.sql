-- How much of a task's order is recorded.
-- Parameters: task_id bigint
-- Columns: drawn bigint
select count(*) as drawn from draw where task_id = :task_id
