-- How often each object is still to be read itself; objects that are not do not appear.
--   object_id: number of the object
--   refs: uses to come
--   drawn_refs: of those, uses whose draw is recorded
--   next_iterations: iterations until the first of them
--   next_need_s: seconds until the first of them
select
    object_id, count(*) as refs, count(*) filter (where drawn) as drawn_refs,
    min(iterations_ahead) as next_iterations, min(need_s) as next_need_s
from deadlines
group by object_id
