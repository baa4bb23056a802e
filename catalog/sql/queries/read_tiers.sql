-- The tiers as they were configured last.
-- Columns: tier text, url text, budget_bytes bigint
select tier, url, budget_bytes
from tier
order by tier
