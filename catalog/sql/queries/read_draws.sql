-- The recorded order of some epochs.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
-- Columns: task_id bigint, epoch integer, position integer, video_id bigint
select task_id, epoch, position, video_id
from draw
where task_id = :task_id and epoch between :first_epoch and :last_epoch
union all
select task_id, epoch, position, item_id
from order_places
where task_id = :task_id and epoch between :first_epoch and :last_epoch
order by epoch, position
