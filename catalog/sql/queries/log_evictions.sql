-- Keep a record of copies that are about to be deleted.
-- Given: gone (object_id bigint, tier text, reason text, at_s double)
insert into eviction (object_id, tier, bytes, reason, at_s)
select k.object_id, k.tier, k.bytes, g.reason, g.at_s
from gone g
join object_copy k on k.object_id = g.object_id and k.tier = g.tier
