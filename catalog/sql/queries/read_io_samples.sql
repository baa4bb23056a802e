-- What work has cost so far, by kind.
-- Columns: op text, size_bucket integer, codec text, tier text, n bigint, seconds double, bytes bigint, cpu_s double
select op, size_bucket, codec, tier, n, seconds, bytes, cpu_s
from io_sample
