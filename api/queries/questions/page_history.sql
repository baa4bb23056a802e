-- How did reading and eviction go, over the ten minutes, the two hours and the day before the last activity?
with happened as (
    select at_s, case when kind = 'stall' and detail = 'load' then 'load' else kind end as kind, count, seconds, bytes
    from events
    where kind in ('hit', 'miss', 'stall')
    union all
    select at_s, 'evict', 1, 0, bytes from evictions
),
ended as (select floor(max(at_s)) + 1 as at_s from happened),
spans (span_s, step_s) as (values (600, 10), (7200, 120), (86400, 1440))
select
    s.span_s, s.step_s, e.at_s as end_s, cast(ceil((e.at_s - h.at_s) / s.step_s) as bigint) - 1 as steps_before, h.kind,
    cast(sum(h.count) as bigint) as count, sum(h.seconds) as seconds, cast(sum(h.bytes) as bigint) as bytes
from happened h
cross join ended e
cross join spans s
where h.at_s >= e.at_s - s.span_s
group by s.span_s, s.step_s, e.at_s, ceil((e.at_s - h.at_s) / s.step_s), h.kind
