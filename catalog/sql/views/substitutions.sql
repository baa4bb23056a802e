-- Every use of a policy for a bad or a short video, or a bad or short segment of one.
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
--   item_id: number of the item that was drawn: a segment, or that of the video where it is drawn as a whole
--   replacement_item_id: number of the item used instead, when replaced
select
    s.task_id, t.name as task, s.epoch, s.position, s.sample, v.video_id, v.name as video, s.policy,
    r.video_id as replacement_id, r.name as replacement, s.reason, s.at_s, s.video_id as item_id,
    s.replacement_id as replacement_item_id
from substitution s
join task t on t.task_id = s.task_id
left join item i on i.item_id = s.video_id
join video v on v.video_id = coalesce(i.video_id, s.video_id)
left join item j on j.item_id = s.replacement_id
left join video r on r.video_id = coalesce(j.video_id, s.replacement_id)
