-- Objects that were made longest ago leave first; future uses are not considered.
-- Given: candidates (object_id bigint, bytes bigint, created_tick bigint)
-- Columns: object_id bigint, bytes bigint, reason text
select object_id, bytes, 'made longest ago' as reason
from candidates
order by created_tick, object_id
