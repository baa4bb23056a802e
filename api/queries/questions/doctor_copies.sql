-- What should lie in each tier, and how much may?
select c.tier, c.physical, c.bytes, t.budget_bytes
from copies c
join tiers t on t.tier = c.tier
where c.tier <> 'memory'
