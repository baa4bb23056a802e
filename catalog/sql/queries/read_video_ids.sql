-- The ids of files of a dataset by uri; none of those that it does not have.
-- Parameters: dataset_id bigint
-- Given: asked (uri text)
-- Columns: uri text, video_id bigint
select v.uri, v.video_id from video v join asked a on a.uri = v.uri where v.dataset_id = :dataset_id
