-- How much of a task's order is drawn for certain.
-- Parameters: task_id bigint
-- Columns: drawn bigint
select cast(coalesce(sum(d.drawn), 0) as bigint) as drawn
from (
    select count(*) as drawn
    from draw w
    left join settled s on s.task_id = w.task_id and s.epoch = w.epoch
    where w.task_id = :task_id and w.position < coalesce(s.positions, w.position + 1)
    union all
    select items from epoch_order where task_id = :task_id
) d
