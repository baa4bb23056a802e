-- How much each object is wanted, its own uses and those of descendants that would have to be made from it.
-- A descendant that has a copy does not pass its uses on. Objects that nothing wants do not appear.
--   object_id: number of the object
--   refs: uses to come
--   drawn_refs: of those, uses whose draw is recorded
--   next_iterations: iterations until the first of them
--   next_need_s: seconds until the first of them
with recursive wanted (object_id, refs, drawn_refs, next_iterations, next_need_s) as (
    select object_id, refs, drawn_refs, next_iterations, next_need_s
    from refcounts
    union all
    select e.parent_id, w.refs, w.drawn_refs, w.next_iterations, w.next_need_s
    from wanted w
    join edge e on e.child_id = w.object_id
    where not exists (select 1 from object_copy k where k.object_id = w.object_id)
)
select
    object_id, cast(sum(refs) as bigint) as refs, cast(sum(drawn_refs) as bigint) as drawn_refs,
    min(next_iterations) as next_iterations, min(next_need_s) as next_need_s
from wanted
group by object_id
