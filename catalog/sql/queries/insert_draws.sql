-- Record draws that are not recorded yet.
-- Given: drawn (task_id bigint, epoch integer, position integer, video_id bigint)
insert into draw (task_id, epoch, position, video_id)
select n.task_id, n.epoch, n.position, n.video_id
from drawn n
where not exists (
    select 1 from draw w where w.task_id = n.task_id and w.epoch = n.epoch and w.position = n.position
)
order by n.task_id, n.epoch, n.position
