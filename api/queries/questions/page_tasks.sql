-- How far is each task at its slowest reader, and how much of what it still needs is ready: stored, or in the owner's
-- memory for its reader?
-- Parameters:
--   in_memory: numbers of the objects there, as the owner says them, with commas between; -1 for none
select
    t.task_id, t.task, t.epochs, t.generations, i.iterations, coalesce(v.clips, 0) as clips_to_come,
    coalesce(v.ready, 0) + coalesce(m.clips, 0) as ready_to_come
from tasks t
left join (select task_id, min(epoch) as epoch from progress group by task_id) s on s.task_id = t.task_id
left join (select task_id, epoch, max(iteration) + 1 as iterations from uses group by task_id, epoch) i
    on i.task_id = t.task_id and i.epoch = coalesce(s.epoch, 0)
left join (
    select w.task_id, cast(sum(w.clips) as bigint) as clips, cast(sum(w.ready) as bigint) as ready
    from views w
    join positions q on q.task_id = w.task_id
    where w.epoch > q.epoch or (w.epoch = q.epoch and w.iteration >= q.iteration)
    group by w.task_id
) v on v.task_id = t.task_id
left join (
    select u.task_id, count(*) as clips
    from uses u
    join positions q on q.task_id = u.task_id
    where u.object_id in (select cast(unnest(string_to_array($in_memory, ',')) as bigint))
        and u.object_id not in (select object_id from copies) and u.sample >= 0
        and (u.epoch > q.epoch or (u.epoch = q.epoch and u.iteration >= q.iteration))
    group by u.task_id
) m on m.task_id = t.task_id
order by t.task
