-- How much of its last minute did each task spend in reads, and for what?
with active as (
    select task_id, max(at_s) as last_s, min(at_s) as first_s
    from events
    where kind in ('hit', 'miss', 'stall')
    group by task_id
)
select
    e.task, e.detail as cause, sum(e.seconds) as seconds,
    cast(least(60, max(a.last_s) - min(a.first_s) + 1) as double precision) as of_s
from events e
join active a on a.task_id = e.task_id
where e.kind = 'stall' and e.at_s > a.last_s - 60
group by e.task, e.detail
order by e.task, seconds desc
