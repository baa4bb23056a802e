-- Forget what the store told of objects that a plan tells more of now.
-- Given: planned (object_id bigint)
delete from object
where generation_id = -1 and exists (select 1 from planned p where p.object_id = object.object_id)
