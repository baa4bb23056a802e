-- Say of all objects that a generation's batches need that they are kept.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
update object set keep = true
where not keep and object_id in (
    select u.object_id
    from object_use u
    where u.task_id = :task_id and u.epoch between :first_epoch and :last_epoch
)
