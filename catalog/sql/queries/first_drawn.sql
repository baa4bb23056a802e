-- The first epoch in which a task drew each of its items, and the label on record of each.
-- Parameters: task_id bigint
-- Columns: video_id bigint, epoch integer, label text
select w.video_id, min(w.epoch) as epoch, min(case when i.item_id is null then v.label else i.label end) as label
from draw w
left join item i on i.item_id = w.video_id
join video v on v.video_id = coalesce(i.video_id, w.video_id)
where w.task_id = :task_id
group by w.video_id
order by w.video_id
