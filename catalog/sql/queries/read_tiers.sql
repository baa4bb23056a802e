-- The tiers as configured.
-- Columns: tier text, url text, budget_bytes bigint
select tier, url, budget_bytes from tier order by tier
