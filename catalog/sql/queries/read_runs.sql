-- The items of a version, as runs of ids.
-- Parameters: version text
-- Columns: version text, first_place bigint, first_id bigint, items bigint
select version, first_place, first_id, items
from version_run
where version = :version
order by first_place
