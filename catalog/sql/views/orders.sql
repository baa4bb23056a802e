-- Orders that are recorded as what they are computed from, with a digest that proves it: one row an epoch. Those of
-- which each place is a row are in `draws` alone.
--   task_id: number of the task
--   task: name of the task
--   epoch: 0-based
--   items: how many places it has
--   version: digest of the ids of its items in the order of their names, BLAKE2b of 16 bytes as hexadecimal digits
--   word: what the items' random words have in common, 64 bits as a signed number; null where they are in their order
--   digest: that of the ids in the order of the epoch
select o.task_id, t.name as task, o.epoch, o.items, o.version, o.word, o.digest
from epoch_order o
join task t on t.task_id = o.task_id
