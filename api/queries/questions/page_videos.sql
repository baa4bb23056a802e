-- Which videos could not be used, why, and how often was something else done instead?
select
    v.video_id, v.video, v.uri, v.status, coalesce(v.error, s.reason) as message, coalesce(s.uses, 0) as uses, s.policies,
    s.tasks, s.last_s
from videos v
left join (
    select
        video_id, count(*) as uses, max(reason) as reason, max(at_s) as last_s,
        string_agg(distinct policy, ', ') as policies, string_agg(distinct task, ', ') as tasks
    from substitutions
    where policy in ('skip', 'replace')
    group by video_id
) s on s.video_id = v.video_id
where v.status = 'bad' or s.video_id is not null
order by coalesce(s.uses, 0) desc, v.video
limit 100
