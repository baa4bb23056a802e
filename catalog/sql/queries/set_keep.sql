-- Say of objects whether the plan keeps them, as it was last decided.
-- Given: decided (object_id bigint, keep boolean)
update object set keep = d.keep
from decided d
where d.object_id = object.object_id and d.keep <> object.keep
