-- What should lie in the store's folder, and how much may?
select c.physical, c.bytes, t.budget_bytes
from copies c
join tiers t on t.tier = c.tier
where c.tier = 'local'
