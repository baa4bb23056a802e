-- Which of some videos are drawn for certain, or a segment of them, or stand in for another, and by which tasks.
-- Given: changed (video_id bigint)
-- Columns: task_id bigint, task text, video_id bigint
select distinct w.task_id, t.name as task, c.video_id
from (
    select w.task_id, w.video_id
    from draw w
    left join settled s on s.task_id = w.task_id and s.epoch = w.epoch
    where w.position < coalesce(s.positions, w.position + 1)
    union all
    select o.task_id, m.item_id
    from (select distinct task_id, version from epoch_order) o
    join order_items m on m.version = o.version
    union all
    select b.task_id, b.replacement_id
    from substitution b
    where b.replacement_id is not null
) w
left join item i on i.item_id = w.video_id
join changed c on c.video_id = coalesce(i.video_id, w.video_id)
join task t on t.task_id = w.task_id
order by w.task_id, c.video_id
