-- Which packs lie in the store, and how they are written.
-- Columns: object_id bigint, codec text
select b.object_id, min(k.codec) as codec
from object b
join object_copy k on k.object_id = b.object_id
where b.kind = 'pack'
group by b.object_id
