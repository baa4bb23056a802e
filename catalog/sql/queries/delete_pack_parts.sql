-- Forget what some packs have.
-- Given: asked (object_id bigint)
delete from pack_part where object_id in (select w.object_id from asked w)
