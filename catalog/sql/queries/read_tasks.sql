-- Every task by task_id.
-- Columns: task_id bigint, name text, group_id bigint, dataset_id bigint, definition_key text, definition text,
--   epochs integer, videos_per_batch integer, samples_per_video integer, frames_per_clip integer,
--   frame_stride integer, seed bigint, drop_last boolean
select
    task_id, name, group_id, dataset_id, definition_key, definition, epochs, videos_per_batch, samples_per_video,
    frames_per_clip, frame_stride, seed, drop_last
from task
order by task_id
