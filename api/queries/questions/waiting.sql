-- Where did reading spend its time?
select task, kind, detail, sum(count) as count, round(sum(seconds), 3) as seconds
from events
where kind in ('hit', 'miss', 'stall')
group by all
order by task, kind, seconds desc
