-- The value of a setting.
-- Parameters: name text
-- Columns: value text
select value from setting where name = :name
