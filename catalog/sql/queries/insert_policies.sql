-- Record the eviction policies that there are.
-- Given: given (name text, source text, purpose text, text text, active boolean, problem text)
insert into policy (name, source, purpose, text, active, problem)
select name, source, purpose, text, active, problem
from given
