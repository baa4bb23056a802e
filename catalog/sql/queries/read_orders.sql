-- What the orders of some epochs are computed from, where they are recorded by their digests.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
-- Columns: task_id bigint, epoch integer, items bigint, version text, word bigint, digest text
select task_id, epoch, items, version, word, digest
from epoch_order
where task_id = :task_id and epoch between :first_epoch and :last_epoch
order by epoch
