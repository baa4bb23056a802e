-- Places where bytes lie, and how full they are.
--   tier: its name
--   url: its folder or URL
--   budget_bytes: most bytes that it may hold
--   used_bytes: that its copies hold
--   copies: how many
select
    t.tier, t.url, t.budget_bytes,
    cast(coalesce((select sum(k.bytes) from object_copy k where k.tier = t.tier), 0) as bigint) as used_bytes,
    (select count(*) from object_copy k where k.tier = t.tier) as copies
from tier t
