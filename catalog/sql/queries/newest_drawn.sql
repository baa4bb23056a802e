-- The largest id among the items of a task's epoch; null where it has no order.
-- Parameters: task_id bigint, epoch integer
-- Columns: video_id bigint
select max(d.video_id) as video_id
from (
    select max(video_id) as video_id
    from draw
    where task_id = :task_id and epoch = :epoch
    union all
    select max(r.first_id + r.items - 1)
    from epoch_order o
    join version_run r on r.version = o.version
    where o.task_id = :task_id and o.epoch = :epoch
) d
