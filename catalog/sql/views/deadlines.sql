-- Uses that are still to come, and when.
--   object_id: number of the object
--   task_id: number of the task
--   task: name of the task
--   epoch: 0-based
--   iteration: 0-based within the epoch
--   seq: global iteration number
--   position: place of the clip's video in the epoch's order
--   sample: which clip of the video; -1 - sample where the object is the audio of that clip
--   drawn: whether the order is drawn up to here, so that this place is certain; else the epoch still needs the object
--   iterations_ahead: iterations until it is needed; 0 = next
--   need_s: seconds until it is needed, at the task's pace
select
    u.object_id, u.task_id, p.task, u.epoch, u.iteration, u.seq, u.position, u.sample,
    u.position < coalesce(s.positions, w.drawn, o.items, 0) as drawn, u.seq - p.seq as iterations_ahead,
    (u.seq - p.seq) * p.seconds_per_iteration as need_s
from object_use u
join positions p on p.task_id = u.task_id and u.seq >= p.seq
left join ( -- of no epoch that is over: those may be many
    select d.task_id, d.epoch, count(*) as drawn
    from draw d
    join positions q on q.task_id = d.task_id and d.epoch >= q.epoch
    group by d.task_id, d.epoch
) w on w.task_id = u.task_id and w.epoch = u.epoch
left join settled s on s.task_id = u.task_id and s.epoch = u.epoch
left join epoch_order o on o.task_id = u.task_id and o.epoch = u.epoch
