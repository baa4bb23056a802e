-- The recorded uses of policies in some epochs of a task, in the order in which they were recorded.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
-- Columns: epoch integer, position integer, sample integer, video_id bigint, policy text, replacement_id bigint
select epoch, position, sample, video_id, policy, replacement_id
from substitution
where task_id = :task_id and epoch between :first_epoch and :last_epoch
order by at_s, epoch, position, sample
