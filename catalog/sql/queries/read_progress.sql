-- Where each reader of a task is.
-- Parameters: task_id bigint
-- Columns: task_id bigint, rank integer, epoch integer, iteration integer, seq bigint, seconds_per_iteration double,
--   part integer, seen_at double
select task_id, rank, epoch, iteration, seq, seconds_per_iteration, part, seen_at
from task_progress
where task_id = :task_id
order by rank, part
