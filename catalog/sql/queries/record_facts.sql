-- What was found of files: of their content, not of their place in the dataset.
-- Given: found (video_id bigint, key text, size_bytes bigint, mtime_ns bigint, etag text, frames bigint, fps double,
--   duration_s double, width integer, height integer, rotation integer, codec text, pix_fmt text, color_space text,
--   color_range text, keyframes integer, gop_max integer, index_at bigint, time_first bigint, time_step bigint,
--   time_numerator bigint, time_denominator bigint, status text, error_kind text, error text)
update video set
    key = found.key, size_bytes = found.size_bytes, mtime_ns = found.mtime_ns, etag = found.etag,
    frames = found.frames, fps = found.fps, duration_s = found.duration_s, width = found.width,
    height = found.height, rotation = found.rotation, codec = found.codec, pix_fmt = found.pix_fmt,
    color_space = found.color_space, color_range = found.color_range, keyframes = found.keyframes,
    gop_max = found.gop_max, index_at = found.index_at, time_first = found.time_first, time_step = found.time_step,
    time_numerator = found.time_numerator, time_denominator = found.time_denominator, status = found.status,
    error_kind = found.error_kind, error = found.error
from found
where video.video_id = found.video_id
