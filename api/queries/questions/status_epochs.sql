-- What does an epoch cost, in core seconds of all work of all tasks while a task reads it? On average, and of the last
-- generation that was read whole, beside what was expected of that one.
with read as (
    select
        event_id, task_id, task, cast(detail as bigint) as epoch, seconds,
        sum(seconds) over (order by event_id) as so_far
    from events
    where kind = 'epoch'
), cost as (
    select
        task_id, task, epoch,
        so_far - coalesce(lag(so_far) over (partition by task_id order by event_id), so_far - seconds) as seconds
    from read
), of_generation as (
    select
        c.task_id, g.number, sum(c.seconds) / count(distinct c.epoch) as seconds,
        row_number() over (partition by c.task_id order by g.number desc) as place
    from cost c
    join generations g on g.task_id = c.task_id and c.epoch between g.first_epoch and g.last_epoch
    group by c.task_id, g.number, g.first_epoch, g.last_epoch
    having count(distinct c.epoch) = g.last_epoch - g.first_epoch + 1
), forecast as (
    select task_id, cast(detail as bigint) as number, max(seconds) as seconds
    from events
    where kind = 'forecast'
    group by task_id, detail
)
select
    c.task, count(distinct c.epoch) as epochs, sum(c.seconds) / count(distinct c.epoch) as epoch_s,
    max(o.number) as generation, max(o.seconds) as generation_epoch_s, max(f.seconds) as expected_s,
    max(o.seconds) / nullif(max(f.seconds), 0) as ratio
from cost c
left join of_generation o on o.task_id = c.task_id and o.place = 1
left join forecast f on f.task_id = o.task_id and f.number = o.number
group by c.task_id, c.task
order by c.task
