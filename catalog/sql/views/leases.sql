-- Objects that a reader or worker holds; empty in this release, whose one process counts holds in its memory.
--   object_id: number of the object
--   holder: who
--   expires_at: seconds since 1970-01-01 UTC
select object_id, holder, expires_at
from lease
