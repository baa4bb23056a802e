-- Record a task's description.
-- Given: described (task_id bigint, name text, group_id bigint, dataset_id bigint, definition_key text, definition text,
--   epochs integer, videos_per_batch integer, samples_per_video integer, frames_per_clip integer,
--   frame_stride integer, seed bigint, drop_last boolean)
insert into task (
    task_id, name, group_id, dataset_id, definition_key, definition, epochs, videos_per_batch, samples_per_video,
    frames_per_clip, frame_stride, seed, drop_last
)
select
    task_id, name, group_id, dataset_id, definition_key, definition, epochs, videos_per_batch, samples_per_video,
    frames_per_clip, frame_stride, seed, drop_last
from described
on conflict (task_id) do update set
    group_id = excluded.group_id, dataset_id = excluded.dataset_id, definition_key = excluded.definition_key,
    definition = excluded.definition, epochs = excluded.epochs, videos_per_batch = excluded.videos_per_batch,
    samples_per_video = excluded.samples_per_video, frames_per_clip = excluded.frames_per_clip,
    frame_stride = excluded.frame_stride, seed = excluded.seed, drop_last = excluded.drop_last
