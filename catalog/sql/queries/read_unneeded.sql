-- The copies of a tier that no use to come needs, itself or for what is made from it; nobody holds one.
-- Parameters: tier text, now_s double
-- Columns: object_id bigint, physical text, bytes bigint
select k.object_id, k.physical, k.bytes
from object_copy k
where k.tier = :tier
    and k.object_id not in (select d.object_id from object_demand d)
    and k.object_id not in (select l.object_id from lease l where l.expires_at > :now_s)
order by k.object_id
