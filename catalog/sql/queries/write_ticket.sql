-- Number a transaction, so that one whose outcome is not known can be looked up.
-- Parameters: name text, ticket bigint
insert into counter (name, next_id) values (:name, :ticket)
on conflict (name) do update set next_id = excluded.next_id
