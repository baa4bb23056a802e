-- A task's generations in order.
-- Parameters: task_id bigint
-- Columns: generation_id bigint, group_id bigint, task_id bigint, number integer, first_epoch integer,
--   last_epoch integer, objects bigint, bytes bigint, decode_s double, planned_at double,
--   group_epoch integer, grid integer
select generation_id, group_id, task_id, number, first_epoch, last_epoch, objects, bytes, decode_s, planned_at,
    group_epoch, grid
from generation
where task_id = :task_id
order by number
