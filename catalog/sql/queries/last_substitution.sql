-- When a policy for a bad or short video was last used; 0 when none was.
-- Columns: at_s double
select coalesce(max(at_s), cast(0 as double precision)) as at_s from substitution
