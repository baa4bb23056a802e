-- What has work taken of cores and of energy?
select class, stage, cpu_s, wall_s, joules, source, since_s
from usage
order by class, cpu_s desc, stage
