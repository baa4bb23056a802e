-- Which packs lie in the store of which the pictures are known.
-- Columns: object_id bigint
select b.object_id
from object b
where b.kind = 'pack'
    and exists (select 1 from object_copy k where k.object_id = b.object_id)
    and exists (select 1 from pack_part p where p.object_id = b.object_id)
