-- Give segments other labels.
-- Given: labelled (item_id bigint, label text)
update item set label = labelled.label
from labelled
where item.item_id = labelled.item_id
