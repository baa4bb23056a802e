-- Number a transaction of a writer that has numbered one before; changes no row when it has not.
-- Parameters: name text, ticket bigint
update counter set next_id = :ticket where name = :name
