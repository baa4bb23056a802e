-- The number of the last transaction that this owner committed; null for none.
-- Parameters: name text
-- Columns: ticket bigint
select max(next_id) as ticket
from counter
where name = :name
