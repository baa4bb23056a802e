-- Which batches are due next, and how many of their clips are ready: stored, or in the owner's memory for their reader?
-- What is missing are objects: clips and their audio, and blocks of several images.
-- Parameters:
--   in_memory: numbers of the objects there, as the owner says them, with commas between; -1 for none
select
    d.task, d.epoch, d.iteration, d.iterations_ahead as ahead, count(*) filter (where d.sample >= 0) as clips,
    count(m.object_id) filter (where d.sample >= 0) as ready,
    count(distinct d.object_id) filter (where m.object_id is null) as missing, bool_and(d.drawn) as drawn
from deadlines d
left join (
    select object_id from copies
    union
    select cast(unnest(string_to_array($in_memory, ',')) as bigint) as object_id
) m on m.object_id = d.object_id
where d.iterations_ahead < 6
group by d.task, d.epoch, d.iteration, d.iterations_ahead
order by d.iterations_ahead, d.task
limit 240
