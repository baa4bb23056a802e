-- Where a task has drawn some videos for certain, or segments of them, or they stand in for others, and how many items
-- those epochs have, if their draws are recorded one by one.
-- Parameters: task_id bigint
-- Given: changed (video_id bigint)
-- Columns: epoch integer, position integer, videos bigint
select w.epoch, w.position, n.videos
from (
    select d.epoch, d.position, d.video_id
    from draw d
    left join settled s on s.task_id = d.task_id and s.epoch = d.epoch
    where d.task_id = :task_id and d.position < coalesce(s.positions, d.position + 1)
    union all
    select b.epoch, b.position, b.replacement_id
    from substitution b
    where b.task_id = :task_id and b.replacement_id is not null
) w
left join item i on i.item_id = w.video_id
join changed c on c.video_id = coalesce(i.video_id, w.video_id)
left join (select epoch, count(*) as videos from draw where task_id = :task_id group by epoch) n on n.epoch = w.epoch
order by w.epoch, w.position
