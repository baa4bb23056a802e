-- Every copy in a tier with what a read of it needs.
-- Parameters: tier text
-- Columns: object_id bigint, key text, kind text, shape text, physical text, bytes bigint, codec text, chunk_rows integer,
--   table_blob blob
select k.object_id, o.key, o.kind, o.shape, k.physical, k.bytes, k.codec, k.chunk_rows, k.table_blob
from object_copy k
join object o on o.object_id = k.object_id
where k.tier = :tier
order by k.object_id
