-- Objects without a copy in a tier that a use to come needs, itself or for what is made from it.
-- Parameters: tier text
-- Columns: object_id bigint
select d.object_id
from object_demand d
where d.object_id not in (select k.object_id from object_copy k where k.tier = :tier)
order by d.object_id
