-- What has left the tiers, and why?
select
    tier, reason, policy, detail, count(*) as objects, cast(sum(bytes) as bigint) as bytes, max(at_s) as last_s
from evictions
group by tier, reason, policy, detail
order by objects desc, last_s desc
limit 50
