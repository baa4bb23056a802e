-- Note who holds which objects until when.
-- Given: held (object_id bigint, holder text, expires_at double)
insert into lease (object_id, holder, expires_at)
select object_id, holder, expires_at
from held
on conflict (object_id, holder) do update set expires_at = excluded.expires_at
