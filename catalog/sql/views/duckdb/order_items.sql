-- The items of the versions that orders are computed from.
--   version: digest of their ids, as in orders
--   place: 0-based, by name
--   item_id: number of the item: a segment, or that of the video where it is drawn as a whole
select version, first_place + i as place, first_id + i as item_id
from (select version, first_place, first_id, unnest(range(items)) as i from version_run) r
