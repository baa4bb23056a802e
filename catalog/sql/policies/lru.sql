-- Objects that were read longest ago leave first; future uses are not considered.
-- Given: candidates (object_id bigint, bytes bigint, access_tick bigint)
-- Columns: object_id bigint, bytes bigint, reason text
select object_id, bytes, 'read longest ago' as reason
from candidates
order by access_tick, object_id
