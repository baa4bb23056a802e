-- JOADER's rule (§4.2): objects with the fewest uses to come leave first.
-- Given: candidates (object_id bigint, bytes bigint, refs bigint)
-- Columns: object_id bigint, bytes bigint, reason text
select object_id, bytes, case when refs = 0 then 'nothing wants it' else 'wanted least often' end as reason
from candidates
order by refs, object_id
