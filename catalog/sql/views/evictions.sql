-- Copies that were removed, and why.
--   object_id: number of the object
--   key: its content key
--   kind: frames, aug or clip
--   video_id: number of its video
--   tier: where the copy lay
--   bytes: that were freed
--   reason: evict (room was needed, or nothing wants it any more), rebuild (damaged when read), damaged (found by verify) or missing (at a start)
--   policy: name of the policy that chose it, where room was needed
--   detail: why, in the policy's words, or without one in those of the trim, or that it could not be made again
--   at_s: seconds since 1970-01-01 UTC
select e.object_id, o.key, o.kind, o.video_id, e.tier, e.bytes, e.reason, e.policy, e.detail, e.at_s
from eviction e
left join object o on o.object_id = e.object_id
