-- Of which videos pictures lie in the store that clips are made from, and how they are written.
-- Columns: video_id bigint, kind text, codec text
select distinct b.video_id, b.kind, k.codec
from object_copy k
join object b on b.object_id = k.object_id
where b.kind in ('frames', 'aug') and b.video_id is not null
