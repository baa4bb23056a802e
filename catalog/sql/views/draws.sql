-- The recorded order: which video is where in a task's epoch; never changes once it is here.
--   task_id: number of the task
--   task: name of the task
--   epoch: 0-based
--   position: 0-based place in the epoch's order
--   video_id: number of the video
--   video: name of the video
select w.task_id, t.name as task, w.epoch, w.position, w.video_id, v.name as video
from draw w
join task t on t.task_id = w.task_id
join video v on v.video_id = w.video_id
left join settled s on s.task_id = w.task_id and s.epoch = w.epoch
where w.position < coalesce(s.positions, w.position + 1)
