-- The eviction policies as of the last opening.
-- Columns: name text, source text, purpose text, text text, active boolean, problem text
select name, source, purpose, text, active, problem
from policy
order by name
