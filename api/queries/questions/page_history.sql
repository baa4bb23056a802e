-- How did reading and eviction go, over the ten minutes, the two hours and the day before the last activity?
with happened as (
    select at_s, case when kind = 'stall' and detail = 'load' then 'load' else kind end as kind, count, seconds, bytes
    from events
    where kind in ('hit', 'miss', 'stall')
    union all
    select at_s, 'evict', 1, 0, bytes from evictions
),
latest as (select floor(max(at_s)) as at_s from happened),
spans (span_s, step_s) as (values (600, 10), (7200, 120), (86400, 1440))
select
    s.span_s, s.step_s, l.at_s as end_s, cast(floor((l.at_s - h.at_s) / s.step_s) as bigint) as steps_before, h.kind,
    cast(sum(h.count) as bigint) as count, sum(h.seconds) as seconds, cast(sum(h.bytes) as bigint) as bytes
from happened h
cross join latest l
cross join spans s
where h.at_s <= l.at_s + 1 and floor((l.at_s - h.at_s) / s.step_s) < s.span_s / s.step_s
group by s.span_s, s.step_s, l.at_s, floor((l.at_s - h.at_s) / s.step_s), h.kind
