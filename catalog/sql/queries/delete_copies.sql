-- Forget copies that are no longer there.
-- Given: gone (object_id bigint, tier text)
delete from object_copy
where exists (select 1 from gone g where g.object_id = object_copy.object_id and g.tier = object_copy.tier)
