-- The recorded order: which item is where in a task's epoch; never changes once it is here.
--   task_id: number of the task
--   task: name of the task
--   epoch: 0-based
--   position: 0-based place in the epoch's order
--   video_id: number of the video
--   video: name of the video
--   item_id: number of the item: a segment, or that of the video where it is drawn as a whole
--   start_s: where the segment begins, in seconds; null where the video begins
--   end_s: where the segment ends, in seconds; null where the video ends
select
    w.task_id, t.name as task, w.epoch, w.position, v.video_id, v.name as video, w.item_id, i.start_s, i.end_s
from (
    select d.task_id, d.epoch, d.position, d.video_id as item_id
    from draw d
    left join settled s on s.task_id = d.task_id and s.epoch = d.epoch
    where d.position < coalesce(s.positions, d.position + 1)
    union all
    select task_id, epoch, position, item_id
    from order_places
) w
join task t on t.task_id = w.task_id
left join item i on i.item_id = w.item_id
join video v on v.video_id = coalesce(i.video_id, w.item_id)
