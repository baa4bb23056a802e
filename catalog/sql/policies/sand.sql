-- SAND's rule (§5.4): unneeded objects leave first, then those that are needed last.
-- Given: candidates (object_id bigint, bytes bigint, refs bigint, next_need_s double)
-- Columns: object_id bigint, bytes bigint, reason text
select object_id, bytes, case when refs = 0 then 'nothing wants it' else 'needed last' end as reason
from candidates
order by case when refs = 0 then 0 else 1 end, case when refs = 0 then 0 else -next_need_s end, object_id
