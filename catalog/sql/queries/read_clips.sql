-- The clips that some epochs of a task need, with the source frames of each.
-- Uses of their audio, whose samples count down from -1, are left out, and those of images, which have one frame.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
-- Columns: epoch integer, position integer, sample integer, object_id bigint, video_id bigint, frame_start integer,
--   frame_stride integer, frame_count integer, frame_list integer[]
select
    u.epoch, u.position, u.sample, u.object_id, o.video_id, o.frame_start, o.frame_stride, o.frame_count, o.frame_list
from object_use u
join object o on o.object_id = u.object_id
where u.task_id = :task_id and u.epoch between :first_epoch and :last_epoch and u.sample >= 0 and o.kind <> 'block'
order by u.epoch, u.iteration, u.position, u.sample
