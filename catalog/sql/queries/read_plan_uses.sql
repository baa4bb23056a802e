-- A task's uses in some epochs, in order.
-- Uses of their audio, whose samples count down from -1, are left out.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
-- Columns: task_id bigint, seq bigint, epoch integer, iteration integer, position integer, sample integer,
--   object_id bigint
select task_id, seq, epoch, iteration, position, sample, object_id
from object_use
where task_id = :task_id and epoch between :first_epoch and :last_epoch and sample >= 0
order by epoch, iteration, position, sample
