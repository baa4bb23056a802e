-- Which object each clip of each batch is, past and to come.
--   task_id: number of the task
--   task: name of the task
--   epoch: 0-based
--   iteration: 0-based within the epoch
--   seq: global iteration number, epoch * iterations per epoch + iteration; epochs of other lengths can share numbers
--   position: place of the clip's video in the epoch's order
--   sample: which clip of the video; -1 - sample where the object is the audio of that clip
--   object_id: number of the object
select u.task_id, t.name as task, u.epoch, u.iteration, u.seq, u.position, u.sample, u.object_id
from object_use u
join task t on t.task_id = u.task_id
