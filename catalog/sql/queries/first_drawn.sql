-- The first epoch in which a task drew each of its videos, and the label on record of each.
-- Parameters: task_id bigint
-- Columns: video_id bigint, epoch integer, label text
select w.video_id, min(w.epoch) as epoch, min(v.label) as label
from draw w
join video v on v.video_id = w.video_id
where w.task_id = :task_id
group by w.video_id
order by w.video_id
