-- What happened, added up per kind, task and second.
--   event_id: number of the row
--   at_s: seconds since 1970-01-01 UTC
--   kind: hit, miss, evict, rebuild, error, stall, ...
--   task_id: number of the task, if of one
--   task: name of the task, if of one
--   object_id: number of the object, for errors of one object
--   count: how many times
--   bytes: in all
--   seconds: in all
--   detail: words
select e.event_id, e.at_s, e.kind, e.task_id, t.name as task, e.object_id, e.count, e.bytes, e.seconds, e.detail
from event e
left join task t on t.task_id = e.task_id
