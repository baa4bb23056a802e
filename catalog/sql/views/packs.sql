-- Which kept pictures of images lie together, as objects of kind pack; a row for each picture.
--   object_id: number of the pack
--   pack: its content key
--   place: of the picture among those of the pack, from 0 on
--   image: name of the image
--   key: content key of the picture
--   first_byte: where it begins in the pack
--   state: of the pack, as in objects
select p.object_id, o.key as pack, p.place, v.name as image, p.key, p.first_byte, o.state
from pack_part p
join objects o on o.object_id = p.object_id
left join (select key, min(name) as name from video group by key) v on v.key = p.video_key
