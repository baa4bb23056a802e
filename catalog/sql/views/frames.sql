-- Single source frames: which objects show them.
--   video_id: number of the video
--   video: name of the video
--   frame: 0-based, in presentation order
--   object_id: number of the object
--   kind: frames, aug or clip
--   ordinal: 0-based place of the frame in the object
--   ready: whether the object has a copy
select
    o.video_id, v.name as video, o.frame_start + o.frame_stride * i.ordinal as frame, o.object_id, o.kind, i.ordinal,
    exists (select 1 from object_copy k where k.object_id = o.object_id) as ready
from object o
cross join lateral generate_series(0, o.frame_count - 1) as i (ordinal)
left join video v on v.video_id = o.video_id
where o.frame_list is null
union all
select
    o.video_id, v.name, i.frame, o.object_id, o.kind, i.ordinal - 1,
    exists (select 1 from object_copy k where k.object_id = o.object_id)
from object o
cross join lateral unnest(o.frame_list) with ordinality as i (frame, ordinal)
left join video v on v.video_id = o.video_id
where o.frame_list is not null
