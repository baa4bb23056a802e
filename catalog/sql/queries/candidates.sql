-- Copies of a tier that may be given up, with what a policy may go by. Held and leased ones are left out, and those
-- that are still wanted but cannot be made again. An eviction policy is a SELECT over this relation.
-- `through` finds the demand of `object_demand` from the side of the copies, of which far fewer have children to make.
-- Parameters: tier text, now_s double
-- Given: spared (object_id bigint)
-- Columns: object_id bigint, key text, kind text, video_id bigint, video text, bytes bigint, codec text, keep boolean,
--   refs bigint, drawn_refs bigint, next_need_s double, created_tick bigint, access_tick bigint, cost_s double,
--   load_s double
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
), children (object_id, n) as (
    select parent_id, count(*)
    from edge
    group by parent_id
), source (object_id, cost_s) as ( -- the cheapest of what it is made from: nothing if that lies in the store
    select e.child_id, min(case when k.object_id is null then p.cost_s / n.n else 0 end)
    from edge e
    join object p on p.object_id = e.parent_id
    join children n on n.object_id = e.parent_id
    left join (select object_id from object_copy group by object_id) k on k.object_id = e.parent_id
    group by e.child_id
), loading (codec, s_per_byte) as (
    select codec, sum(seconds) / nullif(sum(bytes), 0)
    from io_sample
    where op = 'load' and tier not in ('memory', 'passing')
    group by codec
)
select
    k.object_id, b.key, b.kind, b.video_id, v.name as video, k.bytes, k.codec, b.keep,
    coalesce(o.refs, 0) + coalesce(i.refs, 0) + coalesce(f.refs, 0) as refs,
    coalesce(o.drawn_refs, 0) + coalesce(i.drawn_refs, 0) as drawn_refs,
    least(o.next_need_s, i.next_need_s) as next_need_s, k.created_tick, k.access_tick,
    coalesce(b.cost_s, 0) + coalesce(s.cost_s, 0) as cost_s, coalesce(b.est_bytes, k.bytes) * l.s_per_byte as load_s
from object_copy k
left join object b on b.object_id = k.object_id
left join video v on v.video_id = b.video_id
left join own o on o.object_id = k.object_id
left join inherited i on i.object_id = k.object_id
left join expected_use f on f.object_id = k.object_id
left join source s on s.object_id = k.object_id
left join loading l on l.codec = k.codec
where k.tier = :tier
    and (v.video_id is null or v.status = 'ok' or coalesce(o.refs, 0) + coalesce(i.refs, 0) + coalesce(f.refs, 0) = 0)
    and k.object_id not in (select x.object_id from spared x)
    and k.object_id not in (select x.object_id from lease x where x.expires_at > :now_s)
