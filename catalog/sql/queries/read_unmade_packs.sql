-- Packs that were formed and never made, and that nothing is expected of.
-- Columns: object_id bigint
select o.object_id
from object o
where o.kind = 'pack'
    and not exists (select 1 from object_copy k where k.object_id = o.object_id)
    and not exists (select 1 from eviction e where e.object_id = o.object_id)
    and not exists (select 1 from expected_use x where x.object_id = o.object_id)
order by o.object_id
