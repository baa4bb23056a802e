-- The segments of a dataset's videos by item_id.
-- Parameters: dataset_id bigint
-- Columns: item_id bigint, dataset_id bigint, video_id bigint, start_s double, end_s double, ordinal integer, label text
select item_id, dataset_id, video_id, start_s, end_s, ordinal, label
from item
where dataset_id = :dataset_id
order by item_id
