-- The settings whose names begin alike.
-- Parameters: prefix text
-- Columns: name text, value text
select name, value from setting where starts_with(name, :prefix)
