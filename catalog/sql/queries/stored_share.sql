-- How many bytes all copies of objects take on disk, and how many their pixels have.
-- Columns: bytes bigint, pixel_bytes bigint
select cast(coalesce(sum(k.bytes), 0) as bigint) as bytes, cast(coalesce(sum(o.est_bytes), 0) as bigint) as pixel_bytes
from object_copy k
join object o on o.object_id = k.object_id
