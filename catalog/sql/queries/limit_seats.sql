-- Forget where readers were that a task has no more.
-- Parameters: task_id bigint, world integer, parts integer
delete from task_progress where task_id = :task_id and (rank >= :world or part >= :parts)
