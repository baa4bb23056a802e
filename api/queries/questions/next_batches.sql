-- Which batches come next, and are they ready?
select v.path, v.clips, v.ready
from views v
join progress p on p.task_id = v.task_id
where v.seq >= p.seq
order by v.seq
limit 4
