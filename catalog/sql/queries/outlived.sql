-- Copies that nothing wants any more while training goes on, the oldest first: of generations that are over, and
-- pictures of which another way is kept by now. An object is asked for by each task that it was planned for, itself or
-- for what is made from it. What may not be known here stays: what nothing was planned from, and pictures of a group
-- in which a task goes on of which it is not weighed what its epochs need.
-- Given: going (task_id bigint, epoch bigint, weighed boolean)
-- Columns: object_id bigint, key text, tier text, last_epoch bigint, pictures_of bigint
with copied (object_id) as (
    select distinct object_id from object_copy
), planned (task_id, group_id, epochs, generation_id, first_epoch, last_epoch, joined) as (
    select
        t.task_id, t.group_id, t.epochs, g.generation_id, g.first_epoch, g.last_epoch,
        coalesce(g.group_epoch, g.first_epoch) - g.first_epoch
    from generation g
    join task t on t.task_id = g.task_id
), begun (task_id, group_id, joined) as ( -- epochs of different tasks compare by those of their group
    select task_id, group_id, min(joined) from planned group by task_id, group_id
), place (task_id, epoch, was_read) as ( -- as in `positions`; who goes back is there before he is recorded there
    select b.task_id, least(coalesce(p.epoch, 0), g.epoch), coalesce(p.epoch, g.epoch) is not null
    from begun b
    left join (
        select task_id, min(epoch) as epoch
        from (
            select task_id, epoch, seen_at, max(seen_at) over (partition by task_id) as last_seen_at
            from task_progress
        ) r
        where seen_at >= last_seen_at - 600
        group by task_id
    ) p on p.task_id = b.task_id
    left join going g on g.task_id = b.task_id
), present (task_id, group_id, first_epoch, joined, was_read) as ( -- where the generation begins that each task is in
    select
        p.task_id, p.group_id,
        coalesce(
            max(p.first_epoch) filter (where w.epoch between p.first_epoch and p.last_epoch), max(w.epoch)
        ),
        min(p.joined), bool_and(w.was_read)
    from planned p
    join place w on w.task_id = p.task_id
    where w.epoch < p.epochs and p.task_id in (select u.task_id from object_use u)
    group by p.task_id, p.group_id
), since (group_id, epoch, weighed) as ( -- no reader who goes on asks for what was before
    select
        n.group_id, min(n.first_epoch + n.joined) filter (where g.task_id is not null and n.was_read),
        bool_and(coalesce(g.weighed, false))
    from present n
    left join going g on g.task_id = n.task_id
    group by n.group_id
), asked (object_id, task_id, last_epoch) as (
    select c.object_id, u.task_id, max(u.epoch)
    from copied c
    join object_use u on u.object_id = c.object_id
    group by c.object_id, u.task_id
    union all
    select c.object_id, u.task_id, max(u.epoch)
    from copied c
    join edge e on e.parent_id = c.object_id
    join object_use u on u.object_id = e.child_id
    group by c.object_id, u.task_id
    union all
    select c.object_id, p.task_id, p.last_epoch
    from copied c
    join object o on o.object_id = c.object_id
    join planned p on p.generation_id = o.generation_id
), past (object_id, last_epoch) as (
    select a.object_id, max(a.last_epoch + b.joined)
    from asked a
    join object o on o.object_id = a.object_id
    join begun b on b.task_id = a.task_id
    left join present n on n.task_id = a.task_id
    left join since s on s.group_id = b.group_id
    where o.kind in ('clip', 'block', 'audio', 'frames', 'aug', 'pack')
    group by a.object_id
    having bool_and(
        coalesce(a.last_epoch + b.joined < s.epoch, false) and (n.task_id is null or a.last_epoch < n.first_epoch)
        and (o.kind in ('clip', 'block', 'audio') or s.weighed)
    )
), given_up (object_id, video_key) as ( -- images in packs for which the keeper has no use
    select p.object_id, p.video_key
    from copied c
    join object o on o.object_id = c.object_id
    join pack_part p on p.object_id = c.object_id
    where o.kind = 'pack' and not o.keep and not exists (select 1 from edge e where e.parent_id = o.object_id)
), replaced (object_id, last_epoch) as ( -- given up by the keeper, and all that it keeps of the video instead is there
    select o.object_id, -1
    from copied c
    join object o on o.object_id = c.object_id
    join video v on v.video_id = o.video_id
    join task_group t on t.dataset_id = v.dataset_id
    join since s on s.group_id = t.group_id
    where o.kind in ('frames', 'aug') and not o.keep and o.generation_id = 0 and array_length(o.frame_list, 1) > 1
        and s.epoch is not null and s.weighed
        and not exists (select 1 from edge e where e.parent_id = o.object_id)
        and o.video_id in (
            select w.video_id
            from expected_use x
            join object w on w.object_id = x.object_id
            left join copied k on k.object_id = x.object_id
            group by w.video_id
            having count(*) = count(k.object_id)
        )
    union all
    select m.object_id, -1
    from given_up m
    left join video v on v.key = m.video_key
    left join task_group t on t.dataset_id = v.dataset_id
    left join since s on s.group_id = t.group_id
    group by m.object_id
    having bool_or(s.epoch is not null and s.weighed)
        and bool_and(m.video_key in (
            select p.video_key
            from expected_use x
            join copied c on c.object_id = x.object_id
            join pack_part p on p.object_id = x.object_id
            where p.video_key in (select g.video_key from given_up g)
        ))
)
select
    k.object_id, o.key, k.tier, cast(d.last_epoch as bigint) as last_epoch,
    case when o.kind in ('frames', 'aug') then o.video_id when o.kind = 'pack' then 0 end as pictures_of
from (select object_id, last_epoch from past union all select object_id, last_epoch from replaced) d
join object_copy k on k.object_id = d.object_id
join object o on o.object_id = d.object_id
left join video v on v.video_id = o.video_id
where (v.video_id is null or v.status = 'ok') -- else it could not be made again
    and not exists (select 1 from expected_use x where x.object_id = d.object_id)
order by d.last_epoch, k.object_id, k.tier
