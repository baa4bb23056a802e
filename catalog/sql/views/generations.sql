-- Chunks of epochs that were planned at once.
--   generation_id: number of the generation
--   group_id: group that it was planned for
--   task_id: number of the task
--   task: name of the task
--   number: 0-based within the task
--   first_epoch: first epoch that it covers
--   last_epoch: last epoch that it covers
--   objects: objects that no earlier plan had named
--   bytes: estimated bytes of what it keeps
--   decode_s: estimated CPU seconds to make everything once
--   planned_at: seconds since 1970-01-01 UTC
--   group_epoch: epoch of the group that its first one is planned with; clips are shared between equal ones
--   grid: clips begin at one phase of so many frames, to share frames with tasks of other strides
select
    g.generation_id, g.group_id, g.task_id, t.name as task, g.number, g.first_epoch, g.last_epoch, g.objects, g.bytes,
    g.decode_s, g.planned_at, g.group_epoch, g.grid
from generation g
join task t on t.task_id = g.task_id
