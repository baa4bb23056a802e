-- What is needed soonest and has no copy, over all tasks, each object once. Tasks have different paces, so seconds
-- compare; the window is in iterations of each task, and bounds the work. This epoch and those behind it are asked for
-- one by one, in plain comparisons, so that DuckDB passes over what lies outside of them.
-- Parameters: n bigint, window bigint
-- Columns: object_id bigint, task_id bigint, seq bigint, iterations_ahead bigint, need_s double
with soon as (
    select x.object_id, x.task_id, x.seq, x.epoch, x.iteration, p.seconds_per_iteration
    from positions p
    join object_use x on x.task_id = p.task_id and x.epoch = p.epoch
        and x.iteration >= p.iteration and x.iteration < p.iteration + :window
    union all
    select x.object_id, x.task_id, x.seq, x.epoch, x.iteration, p.seconds_per_iteration
    from positions p
    join object_use x on x.task_id = p.task_id and x.epoch > p.epoch and x.epoch < p.epoch + :window
    where x.iteration < :window
), counted as (
    select
        object_id, task_id, seq, seconds_per_iteration,
        dense_rank() over (partition by task_id order by epoch, iteration) - 1 as ahead
    from soon
)
select u.object_id, min(u.task_id) as task_id, min(u.seq) as seq, min(u.ahead) as iterations_ahead,
    min(u.ahead * u.seconds_per_iteration) as need_s
from counted u
where u.ahead < :window and not exists (select 1 from object_copy k where k.object_id = u.object_id)
group by u.object_id
order by need_s, object_id
limit :n
