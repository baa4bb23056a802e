-- The group of a dataset's tasks.
-- Parameters: dataset_id bigint
-- Columns: group_id bigint
select min(group_id) as group_id from task_group where dataset_id = :dataset_id
