-- Append uses of policies for bad and short videos.
-- Given: substituted (task_id bigint, epoch integer, position integer, sample integer, video_id bigint,
--   policy text, reason text, replacement_id bigint, at_s double)
insert into substitution (task_id, epoch, position, sample, video_id, policy, replacement_id, reason, at_s)
select task_id, epoch, position, sample, video_id, policy, replacement_id, reason, at_s
from substituted
