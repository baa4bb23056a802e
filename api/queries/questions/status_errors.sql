-- What went wrong last?
select about, name, message, count, at_s
from errors
order by coalesce(at_s, 0) desc
limit 5
