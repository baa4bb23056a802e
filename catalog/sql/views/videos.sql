-- Source files, as the last scan found them; an image is a video of one frame.
--   video_id: number of the video; kept when its content changes
--   video: its name in paths
--   dataset_id: number of its dataset
--   dataset: folder, glob or URL of its dataset; of images with `images:` before it, or `images:exif=ignore:`
--   uri: absolute path or URL
--   status: ok, bad (cannot be decoded), listed (nobody has looked into it yet) or gone (no longer there)
--   label: from the labels table or the folder's name; several as a JSON list; of a row that has left what it said last
--   frames: how many, in presentation order
--   fps: average frames per second
--   duration_s: seconds
--   width: pixels as coded, before rotation
--   height: pixels as coded, before rotation
--   rotation: degrees counter-clockwise by which frames are turned for display, 0, 90, 180 or 270
--   codec: as FFmpeg names it
--   pix_fmt: as FFmpeg names it
--   color_space: as FFmpeg names it
--   color_range: as FFmpeg names it
--   keyframes: frames that can be decoded without another
--   gop_max: most frames from one keyframe to the next
--   indexed: whether all of its packets were looked at, and not its header alone
--   size_bytes: of the file
--   mtime_ns: nanoseconds since 1970-01-01 UTC, of local files
--   etag: of remote files
--   key: hash of uri and etag, or of uri, size and mtime
--   error_kind: kind of the error, when bad, or bad until it was gone
--   error: its message, when bad
select
    v.video_id, v.name as video, v.dataset_id, d.uri as dataset, v.uri, v.status, v.label, v.frames, v.fps,
    v.duration_s, v.width, v.height, v.rotation, v.codec, v.pix_fmt, v.color_space, v.color_range, v.keyframes,
    v.gop_max, v.index_at is not null as indexed, v.size_bytes, v.mtime_ns, v.etag, v.key, v.error_kind, v.error
from video v
join dataset d on d.dataset_id = v.dataset_id
