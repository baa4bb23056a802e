-- The further columns of a dataset's items.
-- Parameters: dataset_id bigint
-- Columns: video_id bigint, name text, text_value text, number_value double
select c.video_id, c.name, c.text_value, c.number_value
from video_column c
left join item i on i.item_id = c.video_id
join video v on v.video_id = coalesce(i.video_id, c.video_id)
where v.dataset_id = :dataset_id
order by c.video_id, c.name
