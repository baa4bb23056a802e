-- Give videos the keys of other contents.
-- Given: changed (video_id bigint, key text)
update video set key = changed.key
from changed
where video.video_id = changed.video_id
