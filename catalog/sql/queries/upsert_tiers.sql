-- Record the tiers as they are configured.
-- Given: configured (tier text, url text, budget_bytes bigint)
insert into tier (tier, url, budget_bytes)
select tier, url, budget_bytes
from configured
on conflict (tier) do update set url = excluded.url, budget_bytes = excluded.budget_bytes
