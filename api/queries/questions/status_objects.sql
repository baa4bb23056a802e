-- What is there, and in which state?
select kind, state, count(*) as objects, cast(sum(bytes) as bigint) as bytes
from objects
group by kind, state
order by kind, state
