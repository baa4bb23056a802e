-- The first epoch in which a task drew each of its items, and the label on record of each.
-- Parameters: task_id bigint
-- Columns: video_id bigint, epoch integer, label text
select w.video_id, min(w.epoch) as epoch, min(case when i.item_id is null then v.label else i.label end) as label
from (
    select video_id, epoch
    from draw
    where task_id = :task_id
    union all
    select m.item_id, o.epoch
    from (select version, min(epoch) as epoch from epoch_order where task_id = :task_id group by version) o
    join order_items m on m.version = o.version
) w
left join item i on i.item_id = w.video_id
join video v on v.video_id = coalesce(i.video_id, w.video_id)
group by w.video_id
order by w.video_id
