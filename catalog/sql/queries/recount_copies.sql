-- Correct how many bytes copies take, counted anew.
-- Given: counted (object_id bigint, tier text, bytes bigint)
update object_copy set bytes = c.bytes
from counted c
where object_copy.object_id = c.object_id and object_copy.tier = c.tier
