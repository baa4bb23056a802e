-- Forget what some packs have.
-- Given: packs (object_id bigint)
delete from pack_part where object_id in (select w.object_id from packs w)
