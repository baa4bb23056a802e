-- Every use of a policy for a bad or a short video.
--   task_id: number of the task
--   task: name of the task
--   epoch: 0-based; for videos left out the first one of the generation
--   position: place in the epoch's order; -1 = left out of the whole generation
--   sample: which clip of the video; -1 = all of them
--   video_id: number of the video that was drawn
--   video: its name
--   policy: skip, replace, clamp or loop
--   replacement_id: number of the video used instead, when replaced
--   replacement: its name
--   reason: why the policy was used
--   at_s: seconds since 1970-01-01 UTC
select
    s.task_id, t.name as task, s.epoch, s.position, s.sample, s.video_id, v.name as video, s.policy, s.replacement_id,
    r.name as replacement, s.reason, s.at_s
from substitution s
join task t on t.task_id = s.task_id
join video v on v.video_id = s.video_id
left join video r on r.video_id = s.replacement_id
