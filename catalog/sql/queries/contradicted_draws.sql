-- Settled draws that the given ones contradict.
-- Given: drawn (task_id bigint, epoch integer, position integer, video_id bigint)
-- Columns: task_id bigint, epoch integer, position integer, video_id bigint
select w.task_id, w.epoch, w.position, w.video_id
from draw w
join drawn n on n.task_id = w.task_id and n.epoch = w.epoch and n.position = w.position
left join settled s on s.task_id = w.task_id and s.epoch = w.epoch
where n.video_id <> w.video_id and w.position < coalesce(s.positions, w.position + 1)
order by w.task_id, w.epoch, w.position
limit 1
