-- What went wrong last? Equal errors once, as often as they came: the same file, say, in each epoch.
select about, name, message, cast(sum(count) as bigint) as count, min(at_s) as first_s, max(at_s) as at_s
from errors
group by about, name, message
order by coalesce(max(at_s), 0) desc, about, name, message
limit 5
