-- What some packs have.
-- Given: asked (object_id bigint)
-- Columns: object_id bigint, pack text, key text, video_key text, first_byte bigint
select p.object_id, o.key as pack, p.key, p.video_key, p.first_byte
from asked w
join pack_part p on p.object_id = w.object_id
join object o on o.object_id = p.object_id
order by p.object_id, p.place
