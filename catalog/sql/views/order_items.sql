-- The items of the versions that orders are computed from.
--   version: digest of their ids, as in orders
--   place: 0-based, by name
--   item_id: number of the item: a segment, or that of the video where it is drawn as a whole
select r.version, r.first_place + g.i as place, r.first_id + g.i as item_id
from version_run r
cross join lateral generate_series(0, r.items - 1) as g(i)
