-- Which of some objects cannot be made again: the file of their video is gone, is another one, or is bad.
-- Given: asked (object_id bigint)
-- Columns: object_id bigint
select o.object_id
from asked a
join object o on o.object_id = a.object_id
join video v on v.video_id = o.video_id
where v.status <> 'ok'
