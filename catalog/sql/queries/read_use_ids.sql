-- The objects that some epochs of a task need, in reading order.
-- Uses of their audio, whose samples count down from -1, are left out.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
-- Columns: object_id bigint
select object_id
from object_use
where task_id = :task_id and epoch between :first_epoch and :last_epoch and sample >= 0
order by epoch, iteration, position, sample
