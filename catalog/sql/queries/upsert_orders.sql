-- Record the orders of epochs by what they are computed from.
-- Given: ordered (task_id bigint, epoch integer, items bigint, version text, word bigint, digest text)
insert into epoch_order (task_id, epoch, items, version, word, digest)
select task_id, epoch, items, version, word, digest
from ordered
on conflict (task_id, epoch) do update set
    items = excluded.items, version = excluded.version, word = excluded.word, digest = excluded.digest
