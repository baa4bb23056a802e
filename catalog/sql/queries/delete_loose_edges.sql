-- Forget how objects are made that are forgotten themselves.
delete from edge where not exists (select 1 from object o where o.object_id = edge.child_id)
