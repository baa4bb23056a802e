-- How many videos have a packet index in the file beside the database.
-- Columns: indexes bigint
select count(*) as indexes
from video
where index_at >= 0
