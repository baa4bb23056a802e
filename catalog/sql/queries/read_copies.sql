-- Every copy by object and tier.
-- Columns: object_id bigint, tier text, physical text, bytes bigint, codec text, chunk_rows integer, table_blob blob,
--   crc bigint, created_tick bigint, access_tick bigint
select object_id, tier, physical, bytes, codec, chunk_rows, table_blob, crc, created_tick, access_tick
from object_copy
order by object_id, tier
