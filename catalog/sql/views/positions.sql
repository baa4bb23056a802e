-- Where each task is: at its slowest reader, or at the start when it has not reported. A reader that was not seen for
-- ten minutes in which another one of the task was is gone, and needs nothing.
--   task_id: number of the task
--   task: name of the task
--   epoch: of the next iteration needed
--   seq: the same as a global iteration number
--   seconds_per_iteration: of the slowest reader; 1 when not known yet, so that need_s then counts iterations
select
    t.task_id, t.name as task, coalesce(min(p.epoch), 0) as epoch, coalesce(min(p.seq), 0) as seq,
    coalesce(nullif(max(p.seconds_per_iteration), 0), 1) as seconds_per_iteration
from task t
left join (
    select
        task_id, epoch, seq, seconds_per_iteration, seen_at, max(seen_at) over (partition by task_id) as last_seen_at
    from task_progress
) p on p.task_id = t.task_id and p.seen_at >= p.last_seen_at - 600
group by t.task_id, t.name
