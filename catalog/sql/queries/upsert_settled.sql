-- Record how far the order of epochs is drawn for certain; what lies behind is planned, and may still change.
-- Given: settled_now (task_id bigint, epoch integer, positions bigint)
insert into settled (task_id, epoch, positions)
select task_id, epoch, positions
from settled_now
on conflict (task_id, epoch) do update set positions = excluded.positions
