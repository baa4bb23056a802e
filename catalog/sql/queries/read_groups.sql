-- Every group of tasks.
-- Columns: group_id bigint, dataset_id bigint
select group_id, dataset_id
from task_group
order by group_id
