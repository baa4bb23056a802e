-- What is there, and in which state?
select kind, state, count(*), sum(bytes) from objects group by all
