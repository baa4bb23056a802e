-- Forget objects that nothing else tells of.
-- Given: asked (object_id bigint)
delete from object where object_id in (select w.object_id from asked w)
