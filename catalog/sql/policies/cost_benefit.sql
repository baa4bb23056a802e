-- Objects that save the fewest seconds for their bytes leave first: uses to come times the seconds that loading saves.
-- Given: candidates (object_id bigint, bytes bigint, refs bigint, cost_s double, load_s double)
-- Columns: object_id bigint, bytes bigint, reason text
select object_id, bytes, case when refs = 0 then 'nothing wants it' else 'saves least for its bytes' end as reason
from candidates
order by refs * (cost_s - coalesce(load_s, 0)) / greatest(bytes, 1), object_id
