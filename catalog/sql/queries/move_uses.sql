-- Give clips the objects of their new videos, where their uses are recorded.
-- Given: moved (task_id bigint, epoch integer, position integer, sample integer, object_id bigint)
update object_use set object_id = n.object_id
from moved n
where object_use.task_id = n.task_id and object_use.epoch = n.epoch and object_use.position = n.position
    and object_use.sample = n.sample
