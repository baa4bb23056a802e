-- Training jobs, as described by their configuration.
--   task_id: number of the task
--   task: its name, the first component of its paths
--   group_id: tasks of one group are planned together
--   dataset_id: number of its dataset
--   dataset: folder, glob or URL of its dataset
--   epochs: how many it will run
--   videos_per_batch: videos in one iteration
--   samples_per_video: clips of one video in one epoch
--   frames_per_clip: frames of one clip before augmentation
--   frame_stride: source frames from one frame of a clip to the next; 0 for clips that are sampled by time
--   seed: of its random numbers
--   drop_last: whether an incomplete last batch is left out
--   generations: how many have been planned
--   definition_key: hash of all that decides what its paths mean
--   definition: the same as text
select
    t.task_id, t.name as task, t.group_id, t.dataset_id, d.uri as dataset, t.epochs, t.videos_per_batch,
    t.samples_per_video, t.frames_per_clip, t.frame_stride, t.seed, t.drop_last,
    (select count(*) from generation g where g.task_id = t.task_id) as generations,
    t.definition_key, t.definition
from task t
join dataset d on d.dataset_id = t.dataset_id
