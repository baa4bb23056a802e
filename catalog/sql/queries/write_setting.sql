-- Change a setting.
-- Parameters: name text, value text
insert into setting (name, value) values (:name, :value)
on conflict (name) do update set value = excluded.value
