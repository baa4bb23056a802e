-- Where each task is: at its slowest reader, or at the start when it has not reported. A reader that was not seen for
-- ten minutes in which another one of the task was is gone, and needs nothing.
--   task_id: number of the task
--   task: name of the task
--   epoch: of the next iteration needed
--   iteration: the next one needed, 0-based within the epoch
--   seq: the same as a global iteration number; see uses
--   seconds_per_iteration: of the slowest reader; 1 when not known yet, so that need_s then counts iterations
select
    t.task_id, t.name as task, coalesce(p.epoch, 0) as epoch, coalesce(p.iteration, 0) as iteration,
    coalesce(p.seq, 0) as seq, coalesce(nullif(p.slowest_s, 0), 1) as seconds_per_iteration
from task t
left join (
    select
        task_id, epoch, iteration, seq, max(seconds_per_iteration) over (partition by task_id) as slowest_s,
        row_number() over (partition by task_id order by epoch, iteration, rank, part) as turn
    from (
        select *, max(seen_at) over (partition by task_id) as last_seen_at
        from task_progress
    ) r
    where seen_at >= last_seen_at - 600
) p on p.task_id = t.task_id and p.turn = 1
