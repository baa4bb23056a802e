-- The owner's logical clock as far as it was recorded: the next run goes on from there.
-- Columns: tick bigint
select coalesce(max(access_tick), 0) as tick
from object_copy
