-- Which batches come next, and are they ready?
select v.path, v.clips, v.ready
from views v
join positions p on p.task_id = v.task_id
where v.epoch > p.epoch or (v.epoch = p.epoch and v.iteration >= p.iteration)
order by v.epoch, v.iteration
limit 4
