-- Single source frames: which objects show them.
--   video_id: number of the video
--   video: name of the video
--   frame: 0-based, in presentation order
--   object_id: number of the object
--   kind: frames, aug or clip
--   ordinal: 0-based place of the frame in the object
--   ready: whether the object has a copy
with shown as ( -- what is known of whole objects is joined before their frames are told apart, which then are a stream
    select
        o.video_id, v.name as video, o.object_id, o.kind, o.frame_start, o.frame_stride, o.frame_count, o.frame_list,
        k.object_id is not null as ready
    from object o
    left join video v on v.video_id = o.video_id
    left join (select distinct object_id from object_copy) k on k.object_id = o.object_id
)
select r.video_id, r.video, r.frame_start + r.frame_stride * r.ordinal as frame, r.object_id, r.kind, r.ordinal, r.ready
from (select *, unnest(range(frame_count)) as ordinal from shown where frame_list is null) r
union all
select l.video_id, l.video, l.frame, l.object_id, l.kind, l.ordinal, l.ready
from (
    select *, unnest(frame_list) as frame, unnest(range(len(frame_list))) as ordinal
    from shown
    where frame_list is not null
) l
