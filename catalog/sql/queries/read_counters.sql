-- The last number given out of each kind, and of each writer's transactions.
-- Columns: name text, next_id bigint
select name, next_id
from counter
order by name
