-- Everything that is planned or made.
--   object_id: number of the object
--   key: content key, 32 hex characters; equal recipes have equal keys
--   kind: frames (as decoded), aug (one frame after some steps), clip, block (pictures of a batch of images), pack (kept pictures of images), audio (of a clip), or source (the encoded file of a video)
--   video_id: number of its video
--   video: name of its video
--   generation_id: the generation that first named it; 0 = none, a frame asked for by its path; -1 = none yet, found in the store
--   generation: its number within the task; null without one
--   depth: augmentation steps done; 0 = decoded
--   state: planned, claimed, ready, evicted or failed
--   tier: where its copy lies (the first by name, if several)
--   codec: of that copy
--   bytes: of all its copies, on disk
--   est_bytes: of its pixels or samples
--   keep: whether the plan keeps it
--   cost_s: estimated CPU seconds to make it from its parent
--   shape: as 32x3x224x224
--   frames: how many source frames it shows
--   refs: times that it is still to be read itself
select
    o.object_id, o.key, o.kind, o.video_id, v.name as video, o.generation_id, g.number as generation, o.depth,
    case
        when k.object_id is not null then 'ready'
        when l.object_id is not null then 'claimed'
        when f.object_id is not null then 'failed'
        when e.object_id is not null then 'evicted'
        else 'planned'
    end as state,
    k.tier, k.codec, k.bytes, o.est_bytes, o.keep, o.cost_s, o.shape,
    coalesce(o.frame_count, array_length(o.frame_list, 1)) as frames,
    coalesce(r.refs, 0) as refs
from object o
left join video v on v.video_id = o.video_id
left join generation g on g.generation_id = o.generation_id
left join (
    select object_id, min(tier) as tier, min(codec) as codec, cast(sum(bytes) as bigint) as bytes
    from object_copy group by object_id
) k on k.object_id = o.object_id
left join (select distinct object_id from lease) l on l.object_id = o.object_id
left join (select distinct object_id from event where kind = 'error' and object_id is not null) f
    on f.object_id = o.object_id
left join (select distinct object_id from eviction) e on e.object_id = o.object_id
left join (select object_id, refs from refcounts) r on r.object_id = o.object_id
