-- What is needed soonest and has no copy, over all tasks, each object once. Tasks have different paces, so seconds
-- compare; the window is in iterations of each task, and bounds the work.
-- Parameters: n bigint, window bigint
-- Columns: object_id bigint, task_id bigint, seq bigint, iterations_ahead bigint, need_s double
select u.object_id, min(p.task_id) as task_id, min(u.seq) as seq, min(u.ahead) as iterations_ahead,
    min(u.ahead * p.seconds_per_iteration) as need_s
from positions p
cross join lateral (
    select x.object_id, x.seq, x.seq - p.seq as ahead
    from object_use x
    where x.task_id = p.task_id and x.seq >= p.seq and x.seq < p.seq + :window
    order by x.seq -- keeps PostgreSQL from joining everything before it looks at the window
) u
where not exists (select 1 from object_copy k where k.object_id = u.object_id)
group by u.object_id
order by need_s, object_id
limit :n
