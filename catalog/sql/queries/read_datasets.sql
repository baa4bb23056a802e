-- Every dataset.
-- Columns: dataset_id bigint, uri text
select dataset_id, uri
from dataset
order by dataset_id
