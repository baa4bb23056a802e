-- What happened, added up per kind, task and second.
--   event_id: number of the row
--   at_s: seconds since 1970-01-01 UTC
--   kind: hit, miss, rebuild, stall (reading waited), prune (what is kept), forecast and epoch (costs), videos_… or error
--   task_id: number of the task, if of one
--   task: name of the task, if of one
--   object_id: number of the object, if of one
--   count: how many clips, each with its audio; of rebuild how many objects; else how many times
--   bytes: in all; 0 where none are counted
--   seconds: in all; 0 where none are counted; of forecast and epoch, core seconds of all tasks together
--   detail: what was waited for, what went wrong, or the number of the generation or epoch
select e.event_id, e.at_s, e.kind, e.task_id, t.name as task, e.object_id, e.count, e.bytes, e.seconds, e.detail
from event e
left join task t on t.task_id = e.task_id
