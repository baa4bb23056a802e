-- How many copies of objects there are, how many bytes all of them take on disk, and how many their pixels have.
-- Columns: copies bigint, bytes bigint, pixel_bytes bigint
select
    count(*) as copies, cast(coalesce(sum(k.bytes), 0) as bigint) as bytes,
    cast(coalesce(sum(o.est_bytes), 0) as bigint) as pixel_bytes
from object_copy k
join object o on o.object_id = k.object_id
