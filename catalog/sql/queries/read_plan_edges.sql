-- How the objects of a task's batches in some epochs are made.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
-- Columns: parent_id bigint, child_id bigint, op text, cost_s double
with recursive needed (object_id) as (
    select object_id
    from object_use
    where task_id = :task_id and epoch between :first_epoch and :last_epoch
    union
    select e.parent_id
    from needed n
    join edge e on e.child_id = n.object_id
)
select parent_id, child_id, op, cost_s
from edge
where child_id in (select object_id from needed)
order by child_id, parent_id
