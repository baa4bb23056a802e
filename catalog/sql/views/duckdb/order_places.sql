-- Which item is where in the orders that are recorded by their digests: computed for the epochs that are asked for, in
-- about a microsecond an item (docs/design/0005-randomness.md, docs/design/0061-orders-by-digest.md).
--   task_id: number of the task
--   epoch: 0-based
--   position: 0-based place in the epoch's order
--   item_id: number of the item: a segment, or that of the video where it is drawn as a whole
select
    task_id, epoch,
    cast(row_number() over (partition by task_id, epoch order by xor(z, z >> 31), place) - 1 as integer) as position,
    item_id
from (
    -- The finalizer of SplitMix64, as materializer/randomness.py has it: here for the address of the item's place among
    -- what comes before it, which is `word`; below for the place. Products and sums are taken modulo 2**64.
    select
        * replace (
            cast(cast(xor(z, z >> 27) as uhugeint) * 10723151780598845931 & 18446744073709551615 as ubigint) as z
        )
    from (
        select
            * replace (
                cast(cast(xor(z, z >> 30) as uhugeint) * 13787848793156543929 & 18446744073709551615 as ubigint) as z
            )
        from (
            select
                * replace (
                    cast(
                        cast(xor(xor(z, z >> 31), word) as uhugeint) + 11400714819323198485 & 18446744073709551615
                        as ubigint
                    ) as z
                )
            from (
                select
                    * replace (
                        cast(cast(xor(z, z >> 27) as uhugeint) * 10723151780598845931 & 18446744073709551615 as ubigint)
                        as z
                    )
                from (
                    select
                        * replace (
                            cast(
                                cast(xor(z, z >> 30) as uhugeint) * 13787848793156543929 & 18446744073709551615
                                as ubigint
                            ) as z
                        )
                    from (
                        select
                            task_id, epoch, word, first_place + i as place, first_id + i as item_id,
                            cast(
                                cast(first_place + i as uhugeint) + 11400714819323198485 & 18446744073709551615
                                as ubigint
                            ) as z
                        from (
                            select
                                o.task_id, o.epoch, r.first_place, r.first_id, unnest(range(r.items)) as i,
                                cast(
                                    cast(o.word as hugeint) + 18446744073709551616 & 18446744073709551615 as ubigint
                                ) as word
                            from epoch_order o
                            join version_run r on r.version = o.version
                        ) a
                    ) b
                ) c
            ) d
        ) e
    ) f
) g
