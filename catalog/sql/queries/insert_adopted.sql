-- Record objects that the store has and nobody knows, as far as they describe themselves; generation -1 says so.
-- Given: found (object_id bigint, key text, kind text, video_key text, depth integer, est_bytes bigint, cost_s double,
--   shape text, frame_list integer[])
insert into object (
    object_id, key, kind, video_id, generation_id, depth, est_bytes, cost_s, keep, shape, frame_list
)
select
    f.object_id, f.key, f.kind, (select min(v.video_id) from video v where v.key = f.video_key), -1, f.depth,
    f.est_bytes, f.cost_s, false, f.shape, f.frame_list
from found f
