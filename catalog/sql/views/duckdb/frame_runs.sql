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
    select video_id, kind, list_reduce(list(distinct cast(frame_stride as bigint)), lambda a, b: lcm(a, b))
    from regular
    group by video_id, kind
), listed as ( -- a list is cut where the next frame is not one step on
    select
        l.video_id, l.kind, l.step, l.frame_list, list_filter(
            range(1, len(l.frame_list) + 1), lambda i: i = 1 or l.frame_list[i] - l.frame_list[i - 1] <> l.step
        ) as begins
    from (
        select coalesce(o.video_id, 0) as video_id, o.kind, coalesce(c.step, 1) as step, o.frame_list
        from object o
        left join common c on c.video_id = coalesce(o.video_id, 0) and c.kind = o.kind
        where o.frame_list is not null
    ) l
), shown (video_id, kind, step, first_frame, frames) as ( -- by objects, in parts whose frames are one step apart
    select
        video_id, kind, step, frame_start + part * frame_stride, (frame_count - part + parts - 1) // parts
    from (
        select
            r.video_id, r.kind, c.step, r.frame_start, r.frame_stride, r.frame_count, c.step // r.frame_stride as parts,
            unnest(range(least(c.step // r.frame_stride, r.frame_count))) as part
        from regular r
        join common c on c.video_id = r.video_id and c.kind = r.kind
    ) split
    union all
    select video_id, kind, step, frame_list[begin], past - begin
    from (
        select
            video_id, kind, step, frame_list, unnest(begins) as begin,
            unnest(list_append(begins[2:], len(frame_list) + 1)) as past
        from listed
    ) cut
), change (video_id, kind, step, frame, more) as ( -- where more or fewer show a frame than the one a step before it
    select
        video_id, kind, min(step), first_frame + step * frames * coalesce(past, 0) as frame,
        count(*) - 2 * count(past)
    from shown
    cross join (values (cast(null as integer)), (1)) as ends (past)
    group by video_id, kind, frame
    having count(*) <> 2 * count(past)
), run as (
    select
        video_id, kind, step, frame, cast(sum(more) over phase as bigint) as objects, lead(frame) over phase as past
    from change
    window phase as (partition by video_id, kind, mod(frame, step) order by frame)
)
select
    v.video_id, v.name as video, r.kind, r.frame as first_frame, r.step, (r.past - r.frame) // r.step as frames,
    r.objects
from run r
left join video v on v.video_id = r.video_id
where r.objects > 0
