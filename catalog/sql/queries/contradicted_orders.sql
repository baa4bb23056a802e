-- Recorded epochs that the given orders contradict: with another digest, or with a row for each place.
-- Given: ordered (task_id bigint, epoch integer, items bigint, version text, word bigint, digest text)
-- Columns: task_id bigint, epoch integer
select n.task_id, n.epoch
from ordered n
left join epoch_order o on o.task_id = n.task_id and o.epoch = n.epoch
where o.digest <> n.digest
    or exists (select 1 from draw w where w.task_id = n.task_id and w.epoch = n.epoch)
order by n.task_id, n.epoch
limit 1
