-- Every eviction, oldest first.
-- Columns: object_id bigint, tier text, bytes bigint, reason text, at_s double
select object_id, tier, bytes, reason, at_s from eviction order by at_s, object_id
