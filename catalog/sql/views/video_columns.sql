-- Further columns of the labels tables, one row per item and column; columns of lists are left out.
--   video_id: number of the video
--   video: its name in paths
--   name: the column's name
--   text_value: its value as text
--   number_value: its value as a number, null when it does not read as one
--   item_id: number of the item that the row of the table is: a segment, or that of the video as a whole
select v.video_id, v.name as video, c.name, c.text_value, c.number_value, c.video_id as item_id
from video_column c
left join item i on i.item_id = c.video_id
join video v on v.video_id = coalesce(i.video_id, c.video_id)
