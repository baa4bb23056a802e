-- Record which object each clip of each batch is; the rows come in the order in which batches are read.
-- Given: planned (task_id bigint, seq bigint, epoch integer, iteration integer, position integer, sample integer,
--   object_id bigint)
insert into object_use (task_id, seq, epoch, iteration, position, sample, object_id)
select task_id, seq, epoch, iteration, position, sample, object_id
from planned
