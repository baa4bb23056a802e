-- Note which iteration a rank needs next, the first time.
-- Parameters: task_id bigint, rank integer, epoch integer, iteration integer, seq bigint, seconds_per_iteration double
insert into task_progress (task_id, rank, epoch, iteration, seq, seconds_per_iteration)
values (:task_id, :rank, :epoch, :iteration, :seq, :seconds_per_iteration)
