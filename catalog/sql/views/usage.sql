-- What work has cost since it is counted, added up over all runs; written every half a minute, at the end of a run, before an answer of cache.sql, and on DuckDB before each snapshot, which answers other processes for two seconds.
--   class: worker, reader, planner (what the cache's own process does beside reading), or machine, which a meter measured whole
--   stage: of a worker as in io_samples, pack with what checking takes, trial and other; of a reader plan, draw, wait and load; of a planner catalog, dispatch, plan, move, list and recover; serve of a planner is all the rest of a service's process, other of a reader that of a process that opened the cache itself, with its own work; of a machine the part that was measured
--   cpu_s: core seconds; null where only energy was measured
--   wall_s: seconds from begin to end, of a worker without those in which it had no core; null where nobody looked at a clock
--   joules: energy; of several classes never that of a meter, which counts all that a machine does
--   source: where the joules are from: estimate (core seconds x cache.power.core_w) or rapl (a meter)
--   since_s: when counting began, in seconds since 1970-01-01 UTC
select kind as class, stage, cpu_s, wall_s, joules, source, since_s
from used
