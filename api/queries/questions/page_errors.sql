-- What else went wrong, the last first?
select about, name, message, cast(sum(count) as bigint) as count, max(at_s) as last_s
from errors
where about <> 'video'
group by about, name, message
order by last_s desc
limit 20
