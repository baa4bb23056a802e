-- Record files of a dataset; a known id takes the new content, and the uri.
-- Given: scanned (video_id bigint, dataset_id bigint, name text, uri text, size_bytes bigint, mtime_ns bigint, etag text,
--   key text, frames bigint, fps double, duration_s double, width integer, height integer, rotation integer,
--   codec text, pix_fmt text, color_space text, color_range text, keyframes integer, gop_max integer,
--   index_at bigint, time_first bigint, time_step bigint, time_numerator bigint, time_denominator bigint,
--   status text, error_kind text, error text, label text)
insert into video (
    video_id, dataset_id, name, uri, size_bytes, mtime_ns, etag, key, frames, fps, duration_s, width, height, rotation,
    codec, pix_fmt, color_space, color_range, keyframes, gop_max, index_at, time_first, time_step, time_numerator,
    time_denominator, status, error_kind, error, label
)
select
    video_id, dataset_id, name, uri, size_bytes, mtime_ns, etag, key, frames, fps, duration_s, width, height, rotation,
    codec, pix_fmt, color_space, color_range, keyframes, gop_max, index_at, time_first, time_step, time_numerator,
    time_denominator, status, error_kind, error, label
from scanned
on conflict (video_id) do update set
    name = excluded.name, uri = excluded.uri, size_bytes = excluded.size_bytes, mtime_ns = excluded.mtime_ns, etag = excluded.etag,
    key = excluded.key, frames = excluded.frames, fps = excluded.fps, duration_s = excluded.duration_s,
    width = excluded.width, height = excluded.height, rotation = excluded.rotation, codec = excluded.codec,
    pix_fmt = excluded.pix_fmt, color_space = excluded.color_space, color_range = excluded.color_range,
    keyframes = excluded.keyframes, gop_max = excluded.gop_max, index_at = excluded.index_at,
    time_first = excluded.time_first, time_step = excluded.time_step, time_numerator = excluded.time_numerator,
    time_denominator = excluded.time_denominator,
    status = excluded.status, error_kind = excluded.error_kind, error = excluded.error, label = excluded.label
