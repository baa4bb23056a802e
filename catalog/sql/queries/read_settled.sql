-- How far the order of a task's epochs is drawn for certain; an epoch that is not here is drawn as far as it is recorded.
-- Parameters: task_id bigint
-- Columns: task_id bigint, epoch integer, positions bigint
select task_id, epoch, positions
from settled
where task_id = :task_id
order by epoch
