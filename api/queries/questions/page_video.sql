-- Which file is a video?
-- Parameters:
--   video_id: number of the video
select video, uri, status, error, dataset like 'images:exif=ignore:%' as as_stored from videos where video_id = $video_id
