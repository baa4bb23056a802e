-- Note which iteration a reader needs next, the first time.
-- Parameters: task_id bigint, rank integer, epoch integer, iteration integer, seq bigint, seconds_per_iteration double,
--   part integer, seen_at double
insert into task_progress (task_id, rank, part, epoch, iteration, seq, seconds_per_iteration, seen_at)
values (:task_id, :rank, :part, :epoch, :iteration, :seq, :seconds_per_iteration, :seen_at)
