-- What would decoding each clip that was read alone, when it was read, have taken? Clips since work is counted (usage),
-- at the rates that were measured here; nothing where less than 64 MiB of pictures were decoded. A clip takes the packets
-- from the keyframe before it to its last frame, or from the one before each of its frames where that is less. Images are
-- left out: what is measured of them is of whole blocks.
with rate as (
    select
        sum(seconds) filter (where op = 'decode') / sum(bytes) filter (where op = 'decode') as decode_s,
        coalesce(sum(seconds) filter (where op = 'convert') / sum(bytes) filter (where op = 'convert'), 0) as convert_s,
        coalesce(sum(seconds) filter (where op = 'augment') / sum(n) filter (where op = 'augment'), 0) as augment_s
    from io_samples
    having sum(bytes) filter (where op = 'decode') >= 67108864
), began as (
    select min(since_s) as since_s
    from usage
), read as (
    select e.task_id, sum(e.count) as clips -- each with its audio, what that takes is left out
    from events e
    cross join began b
    where e.kind in ('hit', 'miss') and e.at_s >= floor(b.since_s)
    group by e.task_id
), video as (
    select
        dataset_id, dataset like 'images:%' as is_image, 1.5 * width * height as bytes, frames,
        1.0 * frames / keyframes as gop
    from videos
    where frames > 0 and keyframes > 0
), clip as (
    select
        t.task_id, t.task, avg(least(1.0 * t.frames_per_clip, v.frames) * v.bytes) as converted,
        avg(v.bytes * least(
            v.frames,
            (v.gop - 1) / 2 + (t.frames_per_clip - 1) * greatest(t.frame_stride, 1) + 1,
            t.frames_per_clip * (v.gop + 1) / 2
        )) as decoded
    from tasks t
    join video v on v.dataset_id = t.dataset_id
    where not v.is_image
    group by t.task_id, t.task
)
select
    c.task, cast(r.clips as bigint) as clips,
    cast(c.decoded * a.decode_s + c.converted * a.convert_s + a.augment_s as double precision) as seconds_each,
    cast(
        r.clips * (c.decoded * a.decode_s + c.converted * a.convert_s + a.augment_s) as double precision
    ) as seconds
from read r
join clip c on c.task_id = r.task_id
cross join rate a
order by c.task
