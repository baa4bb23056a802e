-- Measured work: what each kind of operation costs on objects of each size.
--   op: decode, convert, augment, store, load; fetch, of files that lie far away; of codecs that were tried: pack, unpack, and packed, whose bytes are what was left; read, of a device by `viewcache profile`; what the cache takes whatever is kept: begin, from the opening to the eighth batch, and batch, each one after these
--   size_bucket: log2 of the bytes of one, rounded down
--   codec: of the objects that were made, as in copies; of read, begin and batch nothing
--   tier: where they were put; `passing` is memory for clips that are read once and never stored, `source` stands for the files of a dataset
--   n: how many packets (decode), frames (convert), beginnings, batches or objects (the others)
--   seconds: in all, without waiting for a core that others had; of loads from memory and from local files those of a core alone
--   bytes: of pixels, in all; of fetch and read those of files
--   seconds_each: seconds / n
--   bytes_per_s: bytes / seconds
--   cpu_s: of the seconds, those of a core
--   wait_s: the rest of them: a device, a network and whoever else waits for these
select
    op, size_bucket, codec, tier, n, seconds, bytes, seconds / nullif(n, 0) as seconds_each,
    bytes / nullif(seconds, 0) as bytes_per_s, cpu_s, greatest(seconds - cpu_s, 0) as wait_s
from io_sample
