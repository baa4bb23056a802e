-- Batches: what each path of a task holds and how much of it is ready.
--   task_id: number of the task
--   task: name of the task
--   epoch: 0-based
--   iteration: 0-based within the epoch
--   seq: global iteration number; see uses
--   path: URL of the batch
--   clips: how many it holds; their audio is not counted
--   ready: of those, how many have a copy; those that pass through the owner's memory have none
--   bytes: of those copies
select
    u.task_id, t.name as task, u.epoch, u.iteration, u.seq,
    'view://' || t.name || '/' || u.epoch || '/' || u.iteration || '/view' as path,
    count(*) as clips, count(k.object_id) as ready, cast(coalesce(sum(k.bytes / u.parts), 0) as bigint) as bytes
from (
    -- Pictures of one block are parts of one object.
    select *, count(*) over (partition by task_id, epoch, iteration, object_id) as parts
    from object_use
    where sample >= 0
) u
join task t on t.task_id = u.task_id
left join (select object_id, cast(sum(bytes) as bigint) as bytes from object_copy group by object_id) k
    on k.object_id = u.object_id
group by u.task_id, t.name, u.epoch, u.iteration, u.seq
