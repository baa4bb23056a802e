-- Epochs of given draws whose order is recorded by its digest.
-- Given: drawn (task_id bigint, epoch integer, position integer, video_id bigint)
-- Columns: task_id bigint, epoch integer
select o.task_id, o.epoch
from epoch_order o
where exists (select 1 from drawn n where n.task_id = o.task_id and n.epoch = o.epoch)
order by o.task_id, o.epoch
limit 1
