-- Eviction policies that the cache can use, as of its last opening.
--   name: as in `cache.eviction.policy`
--   active: whether it is the one that is used
--   source: shipped, or the file that it was read from
--   purpose: the first sentence of its file
--   problem: why it cannot be used, or that it was not tried, as those that are not active; null if it can be used
--   text: the SELECT
select name, active, source, purpose, problem, text
from policy
