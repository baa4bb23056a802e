-- How much of a task's order is drawn for certain.
-- Parameters: task_id bigint
-- Columns: drawn bigint
select count(*) as drawn
from draw w
left join settled s on s.task_id = w.task_id and s.epoch = w.epoch
where w.task_id = :task_id and w.position < coalesce(s.positions, w.position + 1)
