-- What does each kind of work cost?
select op, codec, sum(n) as n, round(sum(seconds), 3) as seconds, round(1000 * sum(seconds) / sum(n), 3) as ms_each
from io_samples
group by all
order by seconds desc
