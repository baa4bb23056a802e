-- The ids of known content keys.
-- Given: wanted (key text)
-- Columns: key text, object_id bigint
select o.key, o.object_id
from object o
join wanted w on w.key = o.key
order by o.object_id
