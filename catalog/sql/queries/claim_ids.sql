-- Take a block of ids of one kind.
-- Parameters: name text, n bigint
-- Columns: next_id bigint
insert into counter (name, next_id) values (:name, 1 + :n)
on conflict (name) do update set next_id = counter.next_id + :n
returning next_id
