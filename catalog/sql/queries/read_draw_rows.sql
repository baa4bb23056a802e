-- The order of some epochs where each place of it is recorded.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
-- Columns: task_id bigint, epoch integer, position integer, video_id bigint
select task_id, epoch, position, video_id
from draw
where task_id = :task_id and epoch between :first_epoch and :last_epoch
order by epoch, position
