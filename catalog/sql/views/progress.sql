-- Where each reader of each task is.
--   task_id: number of the task
--   task: name of the task
--   rank: of the training process
--   part: of that rank's batches: the number of a DataLoader's worker, 0 without workers
--   epoch: of the next iteration it needs
--   iteration: the next one it needs
--   seq: the same as a global iteration number; see uses
--   seconds_per_iteration: of the consumer, smoothed; 0 when not known yet
--   seen_at: when it read last, seconds since 1970; 0 when not known
select p.task_id, t.name as task, p.rank, p.part, p.epoch, p.iteration, p.seq, p.seconds_per_iteration, p.seen_at
from task_progress p
join task t on t.task_id = p.task_id
