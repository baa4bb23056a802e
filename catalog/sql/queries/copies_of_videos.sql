-- Copies of objects of some videos.
-- Given: changed (video_id bigint)
-- Columns: object_id bigint, key text, kind text, tier text, physical text, bytes bigint
select k.object_id, o.key, o.kind, k.tier, k.physical, k.bytes
from object_copy k
join object o on o.object_id = k.object_id
where o.video_id in (select c.video_id from changed c)
order by k.object_id, k.tier
