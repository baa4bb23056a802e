-- Give videos other labels.
-- Given: labelled (video_id bigint, label text)
update video set label = labelled.label
from labelled
where video.video_id = labelled.video_id
