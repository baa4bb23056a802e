-- Who holds what until when.
-- Columns: object_id bigint, holder text, expires_at double
select object_id, holder, expires_at from lease order by object_id, holder
