-- Where is each task, and how much of what it still needs is ready: stored, or in the owner's memory for its reader? One
-- that has ended needs nothing; it comes last.
-- Parameters:
--   in_memory: numbers of the objects there, as the owner says them, with commas between; -1 for none
select
    t.task, t.epochs, t.generations, p.rank, p.epoch, p.iteration, p.seconds_per_iteration as seconds_each,
    v.clips as clips_to_come,
    v.ready + coalesce(m.clips, 0) as ready_to_come, t.generations > 0 and v.task_id is null as ended
from tasks t
left join progress p on p.task_id = t.task_id
left join (
    select
        w.task_id, cast(sum(w.clips) filter (where w.is_to_come) as bigint) as clips,
        cast(sum(w.ready) filter (where w.is_to_come) as bigint) as ready
    from (
        select a.*, a.epoch > q.epoch or (a.epoch = q.epoch and a.iteration >= q.iteration) as is_to_come
        from views a
        join positions q on q.task_id = a.task_id
    ) w
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
order by ended, t.task, p.rank
