-- Where bytes lie: one row per object and tier.
--   object_id: number of the object
--   tier: name of the tier
--   physical: path under the tier's root
--   bytes: on disk, metadata included
--   codec: raw, lz4 or zstd1; of kept pictures also delta-lz4, delta-zstd1, h264 or h264-lossy
--   chunk_rows: rows of axis 0 in one inner chunk
--   crc: crc32c over the chunks' checksums
--   created_tick: when it was written, on a clock that goes on with each write and read; 0 = found at a start
--   access_tick: when it was read last, on the same clock; reads are noted some thousands at a time
select object_id, tier, physical, bytes, codec, chunk_rows, crc, created_tick, access_tick
from object_copy
