-- The dataset of a uri.
-- Parameters: uri text
-- Columns: dataset_id bigint
select dataset_id from dataset where uri = :uri
