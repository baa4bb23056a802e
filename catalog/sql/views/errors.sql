-- Everything that failed: videos that cannot be indexed, objects that cannot be made, and the rest. What fails again, in
-- the next epoch say, is a row again; `viewcache status` and the page show equal ones once.
--   about: video, object or task; null for what is of none of them
--   name: the video's uri, the object's key or the task's name; null for what is of none of them
--   message: what went wrong
--   count: how many times
--   at_s: seconds since 1970-01-01 UTC; null for videos, which each scan judges anew
select 'video' as about, v.uri as name, coalesce(v.error_kind || ': ', '') || coalesce(v.error, '') as message,
    cast(1 as bigint) as count, cast(null as double precision) as at_s
from video v
where v.status = 'bad'
union all
select
    case when e.object_id is not null then 'object' when e.task_id is not null then 'task' end,
    coalesce(o.key, t.name), e.detail, e.count, e.at_s
from event e
left join object o on o.object_id = e.object_id
left join task t on t.task_id = e.task_id
where e.kind = 'error'
