-- The policy `demand`: which copies of a tier to give up for so many bytes, first the ones that nothing wants, then
-- those wanted only by draws to come (fewest first), then those needed last. Held and unrecoverable ones are left out.
-- Parameters: tier text, need_bytes bigint, now double
-- Given: spared (object_id bigint)
-- Columns: object_id bigint, bytes bigint, reason text, refs bigint, next_need_s double
with candidate as (
    select
        k.object_id, k.bytes, coalesce(d.refs, 0) as refs, d.next_need_s,
        case when d.refs is null then 0 when d.drawn_refs = 0 then 1 else 2 end as rank,
        case when d.drawn_refs = 0 then d.refs else -d.next_iterations end as within
    from object_copy k
    left join object_demand d on d.object_id = k.object_id
    where k.tier = :tier
        and not exists (select 1 from spared s where s.object_id = k.object_id)
        and not exists (select 1 from lease l where l.object_id = k.object_id and l.expires_at > :now)
        and not exists (
            select 1 from object o join video v on v.video_id = o.video_id
            where o.object_id = k.object_id and v.status <> 'ok' and d.refs is not null
        )
), ordered as (
    select
        object_id, bytes, refs, next_need_s, rank, within,
        sum(bytes) over (order by rank, within nulls first, object_id rows unbounded preceding) - bytes as freed_before
    from candidate
)
select
    object_id, bytes,
    case rank when 0 then 'nothing wants it' when 1 then 'wanted by draws to come' else 'needed last' end as reason,
    refs, next_need_s
from ordered
where freed_before < :need_bytes
order by rank, within nulls first, object_id
