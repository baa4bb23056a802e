-- Keep a record of copies that are about to be deleted.
-- Given: gone (object_id bigint, tier text, reason text, at_s double, policy text, detail text)
insert into eviction (object_id, tier, bytes, reason, at_s, policy, detail)
select k.object_id, k.tier, k.bytes, g.reason, g.at_s, g.policy, g.detail
from gone g
join object_copy k on k.object_id = g.object_id and k.tier = g.tier
