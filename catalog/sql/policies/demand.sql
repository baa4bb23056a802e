-- Unneeded objects leave first, then those with uses that are not drawn yet (fewest first), then those needed last.
-- It equals or beats JOADER's and SAND's rules where both know something (docs/design/0014-eviction-policies.md).
-- Given: candidates (object_id bigint, bytes bigint, refs bigint, drawn_refs bigint, next_need_s double)
-- Columns: object_id bigint, bytes bigint, reason text
select
    object_id, bytes,
    case
        when refs = 0 then 'nothing wants it'
        when drawn_refs = 0 then 'wanted by draws to come'
        else 'needed last'
    end as reason
from candidates
order by
    case when refs = 0 then 0 when drawn_refs = 0 then 1 else 2 end,
    case when drawn_refs = 0 then refs else -next_need_s end,
    object_id
