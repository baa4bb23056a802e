-- What is known of the pictures of a dataset's files, without their packet indexes.
-- Parameters: dataset_id bigint
-- Columns: video_id bigint, name text, key text, frames bigint, width integer, height integer, rotation integer
select video_id, name, key, frames, width, height, rotation
from video
where dataset_id = :dataset_id
order by video_id
