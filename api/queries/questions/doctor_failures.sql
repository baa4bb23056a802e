-- What went wrong, the last first?
select message, at_s from errors where at_s is not null order by at_s desc
