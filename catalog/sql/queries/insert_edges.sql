-- Record what is made from what.
-- Given: planned (parent_id bigint, child_id bigint, op text, cost_s double)
insert into edge (parent_id, child_id, op, cost_s)
select parent_id, child_id, op, cost_s
from planned
