-- The ids of a dataset's files by uri.
-- Parameters: dataset_id bigint
-- Columns: uri text, video_id bigint
select uri, video_id from video where dataset_id = :dataset_id
