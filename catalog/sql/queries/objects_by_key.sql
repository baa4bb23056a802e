-- The ids of known content keys; adopted = found in the store, and named by no plan yet.
-- Given: wanted (key text)
-- Columns: key text, object_id bigint, adopted boolean
select o.key, o.object_id, o.generation_id = -1 as adopted
from object o
join wanted w on w.key = o.key
order by o.object_id
