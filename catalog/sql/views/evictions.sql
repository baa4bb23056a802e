-- Copies that were removed, and why.
--   object_id: number of the object
--   key: its content key
--   kind: frames, aug, clip or batch
--   video_id: number of its video
--   tier: where the copy lay
--   bytes: that were freed
--   reason: of the policy or of the check that removed it
--   at_s: seconds since 1970-01-01 UTC
select e.object_id, o.key, o.kind, o.video_id, e.tier, e.bytes, e.reason, e.at_s
from eviction e
left join object o on o.object_id = e.object_id
