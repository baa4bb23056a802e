-- Uses that are still to come, and when.
--   object_id: number of the object
--   task_id: number of the task
--   task: name of the task
--   epoch: 0-based
--   iteration: 0-based within the epoch
--   seq: global iteration number; see uses
--   position: place of the clip's video in the epoch's order
--   sample: which clip of the video; -1 - sample where the object is the audio of that clip
--   drawn: whether the order is drawn up to here, so that this place is certain; else the epoch still needs the object
--   iterations_ahead: iterations until it is needed; 0 = next
--   need_s: seconds until it is needed, at the task's pace
select
    u.object_id, u.task_id, p.task, u.epoch, u.iteration, u.seq, u.position, u.sample,
    u.position < coalesce(s.positions, w.drawn, o.items, 0) as drawn,
    b.batches_before + u.iteration - p.iteration as iterations_ahead,
    (b.batches_before + u.iteration - p.iteration) * p.seconds_per_iteration as need_s
from object_use u
join positions p on p.task_id = u.task_id and u.epoch >= p.epoch and (u.epoch > p.epoch or u.iteration >= p.iteration)
join ( -- counted, since epochs that were planned at different times may differ in their number of batches
    select
        task_id, epoch, cast(sum(batches) over (partition by task_id order by epoch) as bigint) - batches as batches_before
    from (
        select x.task_id, x.epoch, max(x.iteration) + 1 as batches
        from object_use x
        join positions q on q.task_id = x.task_id and x.epoch >= q.epoch
        group by x.task_id, x.epoch
    ) e
) b on b.task_id = u.task_id and b.epoch = u.epoch
left join ( -- of no epoch that is over: those may be many
    select d.task_id, d.epoch, count(*) as drawn
    from draw d
    join positions q on q.task_id = d.task_id and d.epoch >= q.epoch
    group by d.task_id, d.epoch
) w on w.task_id = u.task_id and w.epoch = u.epoch
left join settled s on s.task_id = u.task_id and s.epoch = u.epoch
left join epoch_order o on o.task_id = u.task_id and o.epoch = u.epoch
