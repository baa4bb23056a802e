-- Record of how much use objects are expected to be in epochs that are not planned.
-- Given: expected (object_id bigint, refs bigint)
insert into expected_use (object_id, refs)
select e.object_id, e.refs
from expected e
