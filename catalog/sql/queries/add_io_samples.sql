-- Add measures to those of the same kind.
-- Given: measured (op text, size_bucket integer, codec text, tier text, n bigint, seconds double, bytes bigint, cpu_s double)
insert into io_sample (op, size_bucket, codec, tier, n, seconds, bytes, cpu_s)
select op, size_bucket, codec, tier, n, seconds, bytes, cpu_s
from measured
on conflict (op, size_bucket, codec, tier) do update set
    n = io_sample.n + excluded.n, seconds = io_sample.seconds + excluded.seconds,
    bytes = io_sample.bytes + excluded.bytes, cpu_s = io_sample.cpu_s + excluded.cpu_s
