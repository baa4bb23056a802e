-- Note which iteration a reader needs next; changes no row when it has not reported before.
-- Parameters: task_id bigint, rank integer, epoch integer, iteration integer, seq bigint, seconds_per_iteration double,
--   part integer, seen_at double
update task_progress set
    epoch = :epoch, iteration = :iteration, seq = :seq, seconds_per_iteration = :seconds_per_iteration,
    seen_at = :seen_at
where task_id = :task_id and rank = :rank and part = :part
