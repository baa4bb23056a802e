-- What else went wrong, the last first? Equal errors once.
select
    coalesce(about, 'cache') as about, coalesce(name, '') as name, message, cast(sum(count) as bigint) as count,
    min(at_s) as first_s, max(at_s) as last_s
from errors
where at_s is not null -- else of a video, which is told among those
group by about, name, message
order by last_s desc
limit 20
