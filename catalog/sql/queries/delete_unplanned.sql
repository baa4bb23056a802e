-- Forget objects that a forgotten generation named and nobody made: no task reads them, or what is made from them.
-- Joined, as PostgreSQL looks through a long list of "not in" once for each row.
delete from object where object_id in (
    select x.object_id
    from object x
    left join (
        with recursive needed (object_id) as (
            select o.object_id
            from object o
            where o.generation_id <= 0 or o.generation_id in (select g.generation_id from generation g)
            union
            select u.object_id from object_use u
            union
            select k.object_id from object_copy k
            union
            select v.object_id from eviction v
            union
            select h.object_id from event h where h.object_id is not null
            union
            select e.parent_id
            from needed n
            join edge e on e.child_id = n.object_id
        )
        select n.object_id from needed n
    ) stays on stays.object_id = x.object_id
    where stays.object_id is null
)
