-- Record what is made from what, where it is not recorded yet.
-- Given: planned (parent_id bigint, child_id bigint, op text, cost_s double)
insert into edge (parent_id, child_id, op, cost_s)
select distinct p.parent_id, p.child_id, p.op, p.cost_s
from planned p
where not exists (select 1 from edge e where e.parent_id = p.parent_id and e.child_id = p.child_id)
