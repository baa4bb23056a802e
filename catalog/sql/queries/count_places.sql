-- How many places the recorded orders of some epochs have, settled or planned.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
-- Columns: places bigint
select cast(coalesce(sum(d.places), 0) as bigint) as places
from (
    select count(*) as places
    from draw
    where task_id = :task_id and epoch between :first_epoch and :last_epoch
    union all
    select items
    from epoch_order
    where task_id = :task_id and epoch between :first_epoch and :last_epoch
) d
