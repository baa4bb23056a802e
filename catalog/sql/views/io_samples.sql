-- Measured work: what each kind of operation costs on objects of each size.
--   op: decode, convert, augment, store, load; fetch, of files that lie far away; of codecs that were tried: pack, unpack, and packed, whose bytes are what was left
--   size_bucket: log2 of the bytes of one, rounded down
--   codec: of the objects that were made, as in copies
--   tier: where they were put; `passing` is memory for clips that are read once and never stored, `source` stands for files that were fetched
--   n: how many packets (decode), frames (convert) or objects (the others)
--   seconds: in all
--   bytes: of pixels, in all
--   seconds_each: seconds / n
--   bytes_per_s: bytes / seconds
select
    op, size_bucket, codec, tier, n, seconds, bytes, seconds / nullif(n, 0) as seconds_each,
    bytes / nullif(seconds, 0) as bytes_per_s
from io_sample
