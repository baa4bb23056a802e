-- How full is the store?
select tier, url, used_bytes, budget_bytes, copies from tiers order by tier
