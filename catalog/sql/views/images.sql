-- Images, as the last scan found them: those of `videos` that are of a dataset of images.
--   image_id: number of the image; kept when its content changes
--   image: its name in paths
--   dataset_id: number of its dataset
--   dataset: folder, glob or URL of its dataset
--   uri: absolute path or URL
--   status: ok, bad (cannot be decoded), listed (nobody has looked into it yet) or gone (no longer there)
--   label: from the labels table or the folder's name; several as a JSON list; of a row that has left what it said last
--   width: pixels as stored, before the orientation that EXIF tells
--   height: pixels as stored, before the orientation that EXIF tells
--   exif: apply, or ignore: then tasks of this dataset take it as it is stored
--   rotation: degrees counter-clockwise by which tasks have it turned, 0, 90, 180 or 270; with ignore always 0
--   codec: jpeg, png, webp or bmp
--   pix_fmt: as FFmpeg names it
--   size_bytes: of the file
--   mtime_ns: nanoseconds since 1970-01-01 UTC, of local files
--   etag: of remote files
--   key: hash of uri and etag, or of uri, size and mtime; with `exif: ignore` another one
--   error_kind: kind of the error, when bad, or bad until it was gone
--   error: its message, when bad
select
    video_id as image_id, video as image, dataset_id,
    case when dataset like 'images:exif=ignore:%' then substr(dataset, 20) else substr(dataset, 8) end as dataset,
    uri, status, label, width, height,
    case when dataset like 'images:exif=ignore:%' then 'ignore' else 'apply' end as exif,
    rotation, codec, pix_fmt, size_bytes, mtime_ns, etag, key, error_kind, error
from videos
where dataset like 'images:%'
