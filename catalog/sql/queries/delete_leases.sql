-- Give objects back.
-- Given: released (object_id bigint, holder text)
delete from lease
where exists (select 1 from released r where r.object_id = lease.object_id and r.holder = lease.holder)
