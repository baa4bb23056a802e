-- What did reading wait for, and how often was a clip there already?
select task, kind, detail, cast(sum(count) as bigint) as count, sum(seconds) as seconds
from events
where kind in ('hit', 'miss', 'stall', 'rebuild')
group by task, kind, detail
order by task, kind, seconds desc
