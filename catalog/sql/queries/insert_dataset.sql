-- Register a dataset.
-- Parameters: dataset_id bigint, uri text
insert into dataset (dataset_id, uri) values (:dataset_id, :uri)
on conflict (dataset_id) do nothing
