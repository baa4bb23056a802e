-- Which item is where in the orders that are recorded by their digests: computed for the epochs that are asked for, in
-- some eight microseconds an item (docs/design/0005-randomness.md, docs/design/0061-orders-by-digest.md).
--   task_id: number of the task
--   epoch: 0-based
--   position: 0-based place in the epoch's order
--   item_id: number of the item: a segment, or that of the video where it is drawn as a whole
select
    task_id, epoch,
    cast(row_number() over (partition by task_id, epoch order by high, low, place) - 1 as integer) as position,
    item_id
from (
    select
        o.task_id, o.epoch, r.first_place + g.i as place, r.first_id + g.i as item_id,
        (o.word >> 32) & 4294967295 as word_high, o.word & 4294967295 as word_low
    from epoch_order o
    join version_run r on r.version = o.version
    cross join lateral generate_series(0, r.items - 1) as g(i)
) a
cross join lateral (
    -- The finalizer of SplitMix64, as materializer/randomness.py has it, from the innermost out: of the place, and of
    -- that among what comes before it in the address, which is `word`. There are no unsigned numbers here, so words are
    -- halves of 32 bits, products are of 16 bits by 32, and "exclusive or" is the sum less twice what both have. Without
    -- the offsets each step would be put into the next in full, four times.
    select
        high + (high >> 31) - 2 * (high & (high >> 31)) as high,
        low + ((low >> 31) + ((high << 1) & 4294967295)) - 2 * (low & ((low >> 31) + ((high << 1) & 4294967295))) as low
    from (
    select
        (
            ((low * 4587 + ((low * 4913) & 65535) * 65536) >> 32) + ((low * 4913) >> 16) + low * 18875
            + (low & 65535) * 38096 * 65536 + high * 4587 + (high & 65535) * 4913 * 65536
        ) & 4294967295 as high, (low * 4587 + ((low * 4913) & 65535) * 65536) & 4294967295 as low
    from (
    select
        high + (high >> 27) - 2 * (high & (high >> 27)) as high,
        low + ((low >> 27) + ((high << 5) & 4294967295)) - 2 * (low & ((low >> 27) + ((high << 5) & 4294967295))) as low
    from (
    select
        (
            ((low * 58809 + ((low * 7396) & 65535) * 65536) >> 32) + ((low * 7396) >> 16) + low * 18285
            + (low & 65535) * 48984 * 65536 + high * 58809 + (high & 65535) * 7396 * 65536
        ) & 4294967295 as high, (low * 58809 + ((low * 7396) & 65535) * 65536) & 4294967295 as low
    from (
    select
        high + (high >> 30) - 2 * (high & (high >> 30)) as high,
        low + ((low >> 30) + ((high << 2) & 4294967295)) - 2 * (low & ((low >> 30) + ((high << 2) & 4294967295))) as low
    from (
    select
        (high + 2654435769 + ((low + 2135587861) >> 32)) & 4294967295 as high,
        (low + 2135587861) & 4294967295 as low
    from (
    select
        high + word_high - 2 * (high & word_high) as high,
        low + word_low - 2 * (low & word_low) as low
    from (
    select
        high + (high >> 31) - 2 * (high & (high >> 31)) as high,
        low + ((low >> 31) + ((high << 1) & 4294967295)) - 2 * (low & ((low >> 31) + ((high << 1) & 4294967295))) as low
    from (
    select
        (
            ((low * 4587 + ((low * 4913) & 65535) * 65536) >> 32) + ((low * 4913) >> 16) + low * 18875
            + (low & 65535) * 38096 * 65536 + high * 4587 + (high & 65535) * 4913 * 65536
        ) & 4294967295 as high, (low * 4587 + ((low * 4913) & 65535) * 65536) & 4294967295 as low
    from (
    select
        high + (high >> 27) - 2 * (high & (high >> 27)) as high,
        low + ((low >> 27) + ((high << 5) & 4294967295)) - 2 * (low & ((low >> 27) + ((high << 5) & 4294967295))) as low
    from (
    select
        (
            ((low * 58809 + ((low * 7396) & 65535) * 65536) >> 32) + ((low * 7396) >> 16) + low * 18285
            + (low & 65535) * 48984 * 65536 + high * 58809 + (high & 65535) * 7396 * 65536
        ) & 4294967295 as high, (low * 58809 + ((low * 7396) & 65535) * 65536) & 4294967295 as low
    from (
    select
        high + (high >> 30) - 2 * (high & (high >> 30)) as high,
        low + ((low >> 30) + ((high << 2) & 4294967295)) - 2 * (low & ((low >> 30) + ((high << 2) & 4294967295))) as low
    from (
    select
        (high + 2654435769 + ((low + 2135587861) >> 32)) & 4294967295 as high,
        (low + 2135587861) & 4294967295 as low
    from (
    select cast(0 as bigint) as high, a.place as low
    offset 0) t
    offset 0) t
    offset 0) t
    offset 0) t
    offset 0) t
    offset 0) t
    offset 0) t
    offset 0) t
    offset 0) t
    offset 0) t
    offset 0) t
    offset 0) t
    offset 0) t
    offset 0
) z
