-- Record what packs have.
-- Given: parts (object_id bigint, place integer, key text, video_key text, first_byte bigint)
insert into pack_part (object_id, place, key, video_key, first_byte)
select p.object_id, p.place, p.key, p.video_key, p.first_byte
from parts p
