-- Record the items of versions that are not recorded yet.
-- Given: runs (version text, first_place bigint, first_id bigint, items bigint)
insert into version_run (version, first_place, first_id, items)
select r.version, r.first_place, r.first_id, r.items
from runs r
where not exists (select 1 from version_run v where v.version = r.version and v.first_place = r.first_place)
order by r.version, r.first_place
