-- Start a group.
-- Parameters: group_id bigint, dataset_id bigint
insert into task_group (group_id, dataset_id) values (:group_id, :dataset_id)
on conflict (group_id) do nothing
