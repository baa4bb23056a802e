-- Source frames by how often objects show them: a row is a run of frames that are shown equally often. A frame that is
-- shown is in one run of its video and kind.
--   video_id: number of the video
--   video: name of the video
--   kind: of the objects: frames, aug or clip
--   first_frame: of the run, 0-based, in presentation order
--   step: from one frame of the run to the next: the least common multiple of the objects' strides, 1 without any
--   frames: how many; the last one is first_frame + step * (frames - 1)
--   objects: how often each is shown; an object that shows a frame twice counts twice
with regular as ( -- 0 stands for no video: null equals nothing
    select coalesce(video_id, 0) as video_id, kind, frame_start, frame_stride, frame_count
    from object
    where frame_list is null and frame_count > 0
), common (video_id, kind, step) as (
    select s.video_id, s.kind, m.step
    from (
        select video_id, kind, array_agg(distinct cast(frame_stride as bigint)) as strides
        from regular
        group by video_id, kind
    ) s
    cross join lateral (
        with recursive multiple (n, step) as (
            select 1, s.strides[1]
            union all
            select n + 1, lcm(step, s.strides[n + 1])
            from multiple
            where n < cardinality(s.strides)
        )
        select max(step) as step
        from multiple
    ) m
), shown (video_id, kind, step, first_frame, frames) as ( -- by objects, in parts whose frames are one step apart
    select
        r.video_id, r.kind, c.step, r.frame_start + p.part * r.frame_stride,
        (r.frame_count - p.part + c.step / r.frame_stride - 1) / (c.step / r.frame_stride)
    from regular r
    join common c on c.video_id = r.video_id and c.kind = r.kind
    cross join lateral generate_series(0, least(c.step / r.frame_stride, r.frame_count) - 1) as p (part)
    union all
    select coalesce(o.video_id, 0), o.kind, coalesce(c.step, 1), i.frame, 1
    from object o
    cross join lateral unnest(o.frame_list) as i (frame)
    left join common c on c.video_id = coalesce(o.video_id, 0) and c.kind = o.kind
    where o.frame_list is not null
), change (video_id, kind, step, frame, more) as ( -- where more or fewer show a frame than the one a step before it
    select
        s.video_id, s.kind, min(s.step), s.first_frame + s.step * s.frames * coalesce(e.past, 0),
        count(*) - 2 * count(e.past)
    from shown s
    cross join (values (cast(null as integer)), (1)) as e (past)
    group by s.video_id, s.kind, s.first_frame + s.step * s.frames * coalesce(e.past, 0)
    having count(*) <> 2 * count(e.past)
), run as (
    select
        video_id, kind, step, frame, cast(sum(more) over phase as bigint) as objects, lead(frame) over phase as past
    from change
    window phase as (partition by video_id, kind, mod(frame, step) order by frame)
)
select
    v.video_id, v.name as video, r.kind, r.frame as first_frame, r.step, (r.past - r.frame) / r.step as frames,
    r.objects
from run r
left join video v on v.video_id = r.video_id
where r.objects > 0
