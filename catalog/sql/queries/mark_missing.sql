-- Videos whose files went, or became other ones, while a cache is open; or are back as they were. What the next opening
-- tells of, and decides, is left to it: it knows these by the error that stands here.
-- Parameters: why text
-- Given: told (video_id bigint, missing boolean)
update video set
    status = case when told.missing then 'gone' else 'ok' end,
    error = case when told.missing then :why end
from told
where video.video_id = told.video_id
    and (told.missing and video.status = 'ok' or not told.missing and video.status = 'gone' and video.error = :why)
