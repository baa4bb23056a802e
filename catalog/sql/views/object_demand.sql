-- How much each object is wanted: its own uses, and those of descendants that would have to be made from it.
-- A descendant that has a copy does not pass its uses on. What is kept for epochs that are not planned yet has the uses
-- that are expected there. Objects that nothing wants do not appear.
--   object_id: number of the object
--   refs: uses to come
--   drawn_refs: of those, uses whose draw is recorded
--   next_iterations: iterations until the first of them
--   next_need_s: seconds until the first of them
with recursive inherited (object_id, refs, drawn_refs, next_iterations, next_need_s) as (
    select e.parent_id, r.refs, r.drawn_refs, r.next_iterations, r.next_need_s
    from refcounts r
    join edge e on e.child_id = r.object_id
    where not exists (select 1 from object_copy k where k.object_id = r.object_id)
    union all
    select e.parent_id, i.refs, i.drawn_refs, i.next_iterations, i.next_need_s
    from inherited i
    join edge e on e.child_id = i.object_id
    where not exists (select 1 from object_copy k where k.object_id = i.object_id)
)
select
    object_id, cast(sum(refs) as bigint) as refs, cast(sum(drawn_refs) as bigint) as drawn_refs,
    min(next_iterations) as next_iterations, min(next_need_s) as next_need_s
from (
    select object_id, refs, drawn_refs, next_iterations, next_need_s from refcounts
    union all
    select object_id, refs, drawn_refs, next_iterations, next_need_s from inherited
    union all
    select object_id, refs, 0, null, null from expected_use
) wanted
group by object_id
