-- Record a generation's new objects.
-- Parameters: generation_id bigint
-- Given: planned (object_id bigint, key text, kind text, video_id bigint, depth integer, est_bytes bigint, cost_s double,
--   keep boolean, shape text, frame_start integer, frame_stride integer, frame_count integer, frame_list integer[])
insert into object (
    object_id, key, kind, video_id, generation_id, depth, est_bytes, cost_s, keep, shape, frame_start, frame_stride,
    frame_count, frame_list
)
select
    object_id, key, kind, video_id, :generation_id, depth, est_bytes, cost_s, keep, shape, frame_start, frame_stride,
    frame_count, frame_list
from planned
