-- Note which iteration each rank needs next.
-- Given: reached (task_id bigint, rank integer, epoch integer, iteration integer, seq bigint,
--   seconds_per_iteration double)
insert into task_progress (task_id, rank, epoch, iteration, seq, seconds_per_iteration)
select task_id, rank, epoch, iteration, seq, seconds_per_iteration
from reached
on conflict (task_id, rank) do update set
    epoch = excluded.epoch, iteration = excluded.iteration, seq = excluded.seq,
    seconds_per_iteration = excluded.seconds_per_iteration
