-- Give positions behind what is settled other videos than were planned there.
-- Given: drawn (task_id bigint, epoch integer, position integer, video_id bigint)
update draw set video_id = n.video_id
from drawn n
where draw.task_id = n.task_id and draw.epoch = n.epoch and draw.position = n.position
