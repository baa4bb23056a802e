-- The log of what happened, oldest first.
-- Columns: event_id bigint, at_s double, kind text, task_id bigint, object_id bigint, count bigint, bytes bigint,
--   seconds double, detail text
select event_id, at_s, kind, task_id, object_id, count, bytes, seconds, detail from event order by at_s, event_id
