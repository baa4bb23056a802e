-- Objects that somebody holds until a given time. Readers and workers of the owning process hold theirs in its memory.
--   object_id: number of the object
--   holder: who
--   expires_at: seconds since 1970-01-01 UTC
select object_id, holder, expires_at
from lease
