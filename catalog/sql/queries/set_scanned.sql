-- Note when a dataset was last scanned.
-- Parameters: dataset_id bigint, at_s double
update dataset set scanned_at = :at_s where dataset_id = :dataset_id
