-- What orders are made of: segments of videos, as label tables have or had them, and every video as a whole.
--   item_id: number of the item; of a whole video that of the video
--   video_id: number of its video
--   video: name of its video
--   start_s: where it begins, in seconds of presentation time; null where the video begins
--   end_s: where it ends, in seconds; null where the video ends
--   label: from the labels table or the folder's name; of a row that has left the table what it said last
select
    v.video_id as item_id, v.video_id, v.name as video, cast(null as double precision) as start_s,
    cast(null as double precision) as end_s, v.label
from video v
union all
select i.item_id, i.video_id, v.name, i.start_s, i.end_s, i.label
from item i
join video v on v.video_id = i.video_id
