-- Append to the log of what happened.
-- Given: happened (kind text, task_id bigint, object_id bigint, count bigint, bytes bigint, seconds double,
--   detail text, at_s double)
insert into event (event_id, at_s, kind, task_id, object_id, count, bytes, seconds, detail)
select
    (select coalesce(max(event_id), 0) from event) + row_number() over (order by at_s),
    at_s, kind, task_id, object_id, count, bytes, seconds, detail
from happened
