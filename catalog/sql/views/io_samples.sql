-- Measured work: what each kind of operation costs on objects of each size.
--   op: decode, augment, load, store, ...
--   size_bucket: log2 of the bytes of one object, rounded down
--   codec: raw, lz4, zstd1, or the video's codec
--   tier: where the bytes lay
--   n: how many times
--   seconds: in all
--   bytes: in all
--   seconds_each: seconds / n
--   bytes_per_s: bytes / seconds
select
    op, size_bucket, codec, tier, n, seconds, bytes, seconds / nullif(n, 0) as seconds_each,
    bytes / nullif(seconds, 0) as bytes_per_s
from io_sample
