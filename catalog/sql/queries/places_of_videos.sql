-- Where a task has drawn some videos for certain, or segments of them, and how many items those epochs have.
-- Parameters: task_id bigint
-- Given: changed (video_id bigint)
-- Columns: epoch integer, position integer, videos bigint
select w.epoch, w.position, n.videos
from draw w
left join item i on i.item_id = w.video_id
join changed c on c.video_id = coalesce(i.video_id, w.video_id)
join (select epoch, count(*) as videos from draw where task_id = :task_id group by epoch) n on n.epoch = w.epoch
left join settled s on s.task_id = w.task_id and s.epoch = w.epoch
where w.task_id = :task_id and w.position < coalesce(s.positions, w.position + 1)
order by w.epoch, w.position
