-- Which file is a video?
-- Parameters:
--   video_id: number of the video
select v.video, v.uri, v.status, v.error, coalesce(i.exif = 'ignore', false) as as_stored
from videos v
left join images i on i.image_id = v.video_id
where v.video_id = $video_id
