-- How much work was measured, of each kind?
select op, cast(sum(n) as bigint) as n, sum(seconds) as seconds
from io_samples
group by op
order by op
