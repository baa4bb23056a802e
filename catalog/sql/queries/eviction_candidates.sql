-- The policy `demand`: which copies of a tier to give up for so many bytes, first those that nothing wants, then those
-- wanted only by draws to come (fewest first), then those needed last. Held and unrecoverable ones are left out.
-- `through` finds the demand of `object_demand` from the side of the copies, of which far fewer have children to make.
-- Parameters: tier text, need_bytes bigint, now_s double
-- Given: spared (object_id bigint)
-- Columns: object_id bigint, bytes bigint, reason text, refs bigint, next_need_s double
with recursive own (object_id, refs, drawn_refs, next_need_s) as (
    select object_id, refs, drawn_refs, next_need_s
    from refcounts
), through (object_id, node_id) as (
    select e.parent_id, e.child_id
    from edge e
    where exists (select 1 from object_copy k where k.object_id = e.parent_id and k.tier = :tier)
        and not exists (select 1 from object_copy k where k.object_id = e.child_id)
    union all
    select h.object_id, e.child_id
    from through h
    join edge e on e.parent_id = h.node_id
    where not exists (select 1 from object_copy k where k.object_id = e.child_id)
), inherited (object_id, refs, drawn_refs, next_need_s) as (
    select h.object_id, cast(sum(o.refs) as bigint), cast(sum(o.drawn_refs) as bigint), min(o.next_need_s)
    from through h
    join own o on o.object_id = h.node_id
    group by h.object_id
), candidate (object_id, bytes, refs, drawn_refs, next_need_s) as (
    select
        k.object_id, k.bytes, coalesce(o.refs, 0) + coalesce(i.refs, 0),
        coalesce(o.drawn_refs, 0) + coalesce(i.drawn_refs, 0), least(o.next_need_s, i.next_need_s)
    from object_copy k
    left join own o on o.object_id = k.object_id
    left join inherited i on i.object_id = k.object_id
    where k.tier = :tier
        and k.object_id not in (select s.object_id from spared s)
        and k.object_id not in (select l.object_id from lease l where l.expires_at > :now_s)
), unrecoverable (lost_id) as (
    select b.object_id
    from object b
    where b.video_id in (select v.video_id from video v where v.status <> 'ok')
), ranked (object_id, bytes, refs, next_need_s, rank, within) as (
    select
        object_id, bytes, refs, next_need_s,
        case when refs = 0 then 0 when drawn_refs = 0 then 1 else 2 end,
        case when drawn_refs = 0 then refs else -next_need_s end
    from candidate
    left join unrecoverable u on u.lost_id = object_id
    where refs = 0 or u.lost_id is null
), ordered (object_id, bytes, refs, next_need_s, rank, within, freed_before) as (
    select
        object_id, bytes, refs, next_need_s, rank, within,
        sum(bytes) over (order by rank, within, object_id rows unbounded preceding) - bytes
    from ranked
)
select
    object_id, bytes,
    case rank when 0 then 'nothing wants it' when 1 then 'wanted by draws to come' else 'needed last' end as reason,
    refs, next_need_s
from ordered
where freed_before < :need_bytes
order by rank, within, object_id
