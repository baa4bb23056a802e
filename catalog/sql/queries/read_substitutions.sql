-- A task's uses of policies, in the order of its batches.
-- Parameters: task_id bigint
-- Columns: task_id bigint, epoch integer, position integer, sample integer, video_id bigint, policy text,
--   reason text, replacement_id bigint, at_s double
select task_id, epoch, position, sample, video_id, policy, reason, replacement_id, at_s
from substitution
where task_id = :task_id
order by epoch, position, sample
