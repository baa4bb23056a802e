-- Where bytes lie: one row per object and tier.
--   object_id: number of the object
--   tier: name of the tier
--   physical: path under the tier's root
--   bytes: on disk, metadata included
--   codec: raw, lz4 or zstd1
--   chunk_rows: rows of axis 0 in one inner chunk
--   crc: crc32c over the chunks' checksums
--   created_tick: place in the order in which one run wrote its copies; 0 = found at a start
--   access_tick: as created_tick; this release does not count reads
select object_id, tier, physical, bytes, codec, chunk_rows, crc, created_tick, access_tick
from object_copy
