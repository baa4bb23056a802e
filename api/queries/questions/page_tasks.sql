-- How far is each task at its slowest reader, and how much of what it still needs is ready?
select
    t.task_id, t.task, t.epochs, t.generations, i.iterations, coalesce(v.clips, 0) as clips_to_come,
    coalesce(v.ready, 0) as ready_to_come
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
order by t.task
