-- How many objects went from workers to readers through memory, and were never stored? A clip's audio is one of its own.
select
    cast(coalesce(sum(n) filter (where op = 'store'), 0) as bigint) as made,
    cast(coalesce(sum(n) filter (where op = 'load'), 0) as bigint) as read,
    cast(coalesce(sum(bytes) filter (where op = 'load'), 0) as bigint) as bytes,
    coalesce(sum(seconds), 0) as seconds
from io_samples
where tier = 'passing'
