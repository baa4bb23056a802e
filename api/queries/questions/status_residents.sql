-- What stays in memory, since clips of each epoch are made from it?
select o.kind, count(*) as residents, cast(sum(c.bytes) as bigint) as bytes
from copies c
join objects o on o.object_id = c.object_id
where c.tier = 'memory' and o.kind in ('frames', 'aug', 'pack')
group by o.kind
order by o.kind
