-- Which batches are due next, and how many of their clips are ready?
select
    d.task, d.epoch, d.iteration, d.iterations_ahead as ahead, count(*) as clips, count(k.object_id) as ready,
    bool_and(d.drawn) as drawn
from deadlines d
left join (select distinct object_id from copies) k on k.object_id = d.object_id
where d.iterations_ahead < 6 and d.sample >= 0
group by d.task, d.epoch, d.iteration, d.iterations_ahead
order by d.iterations_ahead, d.task
limit 240
