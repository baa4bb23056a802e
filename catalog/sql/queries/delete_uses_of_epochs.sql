-- Forget a task's uses in some epochs, because its videos have changed since they were planned.
-- Parameters: task_id bigint, first_epoch integer, last_epoch integer
delete from object_use where task_id = :task_id and epoch between :first_epoch and :last_epoch
