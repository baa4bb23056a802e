-- Add what work has cost to what it had cost before.
-- Given: measured (kind text, stage text, cpu_s double, wall_s double, joules double, source text, since_s double)
insert into used (kind, stage, cpu_s, wall_s, joules, source, since_s)
select kind, stage, cpu_s, wall_s, joules, source, since_s
from measured
on conflict (kind, stage) do update set
    cpu_s = used.cpu_s + excluded.cpu_s, wall_s = used.wall_s + excluded.wall_s,
    joules = used.joules + excluded.joules, source = excluded.source
