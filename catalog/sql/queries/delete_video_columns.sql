-- Forget the further columns of some videos.
-- Given: described (video_id bigint, name text, text_value text, number_value double)
delete from video_column
where video_id in (select d.video_id from described d)
