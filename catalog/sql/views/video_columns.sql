-- Further columns of the labels tables, one row per video and column.
--   video_id: number of the video
--   video: its name in paths
--   name: the column's name
--   text_value: its value as text
--   number_value: its value as a number, null when it does not read as one
select c.video_id, v.name as video, c.name, c.text_value, c.number_value
from video_column c
join video v on v.video_id = c.video_id
