-- Which objects have a copy in a tier, as far as was committed.
-- Parameters: tier text
-- Columns: object_id bigint
select object_id
from object_copy
where tier = :tier
