-- Record the further columns of some videos.
-- Given: described (video_id bigint, name text, text_value text, number_value double)
insert into video_column (video_id, name, text_value, number_value)
select video_id, name, text_value, number_value
from described
