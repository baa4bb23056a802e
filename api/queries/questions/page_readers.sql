-- Where is each reader, and how fast?
select task, rank, part, epoch, iteration, seconds_per_iteration as pace_s, seen_at as seen_s
from progress
order by task, rank, part
limit 500
