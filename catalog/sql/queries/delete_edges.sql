-- Forget what is made from some objects, because nothing is to be made from them any more.
-- Given: given_up (object_id bigint)
delete from edge where parent_id in (select g.object_id from given_up g)
