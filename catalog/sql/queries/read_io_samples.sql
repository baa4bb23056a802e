-- What work has cost so far, by kind.
-- Columns: op text, size_bucket integer, codec text, tier text, n bigint, seconds double, bytes bigint
select op, size_bucket, codec, tier, n, seconds, bytes
from io_sample
