-- The items of all versions, as runs of ids.
-- Columns: version text, first_place bigint, first_id bigint, items bigint
select version, first_place, first_id, items
from version_run
order by version, first_place
