-- What is in a batch, and where does it lie? Images lie several in a block, which names none of them: they are told by
-- the order, and by what stands in for those that could not be used.
-- Parameters:
--   task: name of the task
--   epoch: 0-based
--   iteration: 0-based within the epoch
with chosen as (
    select
        u.position, u.sample, u.object_id, count(*) over (partition by u.object_id) as pictures,
        row_number() over (partition by u.object_id order by u.position, u.sample) - 1 as place
    from uses u
    where u.task = $task and u.epoch = $epoch and u.iteration = $iteration and u.sample >= 0
),
heard as (
    select u.position, -1 - u.sample as sample, u.object_id
    from uses u
    where u.task = $task and u.epoch = $epoch and u.iteration = $iteration and u.sample < 0
),
stood_in as (
    select
        c.position, c.sample, s.replacement_id,
        row_number() over (partition by c.position, c.sample order by s.at_s desc, s.sample desc) as turn
    from chosen c
    join substitutions s on s.position = c.position and s.sample in (-1, c.sample)
    where s.task = $task and s.epoch = $epoch and s.policy = 'replace'
)
select
    c.position, c.sample, o.key, o.state, o.shape, o.kind = 'block' as is_image, c.place, c.pictures, v.video_id, v.video,
    case when d.video_id = v.video_id then i.label else v.label end as label, v.fps, k.physical, a.physical as audio,
    f.frames
from chosen c
join objects o on o.object_id = c.object_id
left join draws d on d.task = $task and d.epoch = $epoch and d.position = c.position
left join stood_in s on s.position = c.position and s.sample = c.sample and s.turn = 1
left join videos v on v.video_id = coalesce(o.video_id, s.replacement_id, d.video_id)
left join items i on i.item_id = d.item_id
left join copies k on k.object_id = c.object_id and k.tier = 'local'
left join heard h on h.position = c.position and h.sample = c.sample
left join copies a on a.object_id = h.object_id and a.tier = 'local'
left join (
    select r.object_id, string_agg(cast(r.frame as text), ' ' order by r.ordinal) as frames
    from frames r
    where r.object_id in (select object_id from chosen)
    group by r.object_id
) f on f.object_id = c.object_id
order by c.position, c.sample
