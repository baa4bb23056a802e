-- Which file is a video?
-- Parameters:
--   video_id: number of the video
select video, uri, status, error from videos where video_id = $video_id
