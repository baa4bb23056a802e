-- Record where objects lie; a newer copy in the same tier takes the older one's place.
-- Given: made (object_id bigint, tier text, physical text, bytes bigint, codec text, chunk_rows integer, table_blob blob,
--   crc bigint, created_tick bigint, access_tick bigint)
insert into object_copy (
    object_id, tier, physical, bytes, codec, chunk_rows, table_blob, crc, created_tick, access_tick
)
select object_id, tier, physical, bytes, codec, chunk_rows, table_blob, crc, created_tick, access_tick
from made
on conflict (object_id, tier) do update set
    physical = excluded.physical, bytes = excluded.bytes, codec = excluded.codec, chunk_rows = excluded.chunk_rows,
    table_blob = excluded.table_blob, crc = excluded.crc, created_tick = excluded.created_tick,
    access_tick = excluded.access_tick
