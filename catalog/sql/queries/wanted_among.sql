-- Which of some objects are still to be read, themselves or by what would have to be made from them: `object_demand`
-- asked for a few.
-- Given: asked (object_id bigint)
-- Columns: object_id bigint
with recursive through (object_id, node_id) as (
    select a.object_id, a.object_id
    from asked a
    union all
    select h.object_id, e.child_id
    from through h
    join edge e on e.parent_id = h.node_id
    where not exists (select 1 from object_copy k where k.object_id = e.child_id)
)
select distinct h.object_id
from through h
where h.node_id in (select d.object_id from deadlines d) or h.object_id in (select f.object_id from expected_use f)
