-- A dataset's files, in any order: the database would hold all of them once more to sort what mostly is in order.
-- Parameters: dataset_id bigint
-- Columns: video_id bigint, dataset_id bigint, name text, uri text, size_bytes bigint, mtime_ns bigint, etag text,
--   key text, frames bigint, fps double, duration_s double, width integer, height integer, rotation integer,
--   codec text, pix_fmt text, color_space text, color_range text, keyframes integer, gop_max integer,
--   index_at bigint, time_first bigint, time_step bigint, time_numerator bigint, time_denominator bigint,
--   status text, error_kind text, error text, label text
select
    video_id, dataset_id, name, uri, size_bytes, mtime_ns, etag, key, frames, fps, duration_s, width, height, rotation,
    codec, pix_fmt, color_space, color_range, keyframes, gop_max, index_at, time_first, time_step, time_numerator,
    time_denominator, status, error_kind, error, label
from video
where dataset_id = :dataset_id
