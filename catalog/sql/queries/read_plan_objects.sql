-- The objects that a task's batches in some epochs need, and all that they are made from.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
-- Columns: object_id bigint, key text, kind text, video_id bigint, depth integer, est_bytes bigint, cost_s double,
--   keep boolean, shape text, frame_start integer, frame_stride integer, frame_count integer, frame_list integer[]
with recursive needed (object_id) as (
    select object_id
    from object_use
    where task_id = :task_id and epoch between :first_epoch and :last_epoch
    union
    select e.parent_id
    from needed n
    join edge e on e.child_id = n.object_id
)
select
    object_id, key, kind, video_id, depth, est_bytes, cost_s, keep, shape, frame_start, frame_stride, frame_count,
    frame_list
from object
where object_id in (select object_id from needed)
order by object_id
