-- What went wrong, the last first?
select message, max(at_s) as at_s from errors where at_s is not null group by message order by max(at_s) desc
