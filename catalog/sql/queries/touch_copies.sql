-- Note when copies were last read; a late report of an earlier read changes nothing.
-- Given: touched (object_id bigint, tier text, access_tick bigint)
update object_copy set access_tick = t.access_tick
from touched t
where t.object_id = object_copy.object_id and t.tier = object_copy.tier and t.access_tick > object_copy.access_tick
