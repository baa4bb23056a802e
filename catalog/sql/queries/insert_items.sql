-- Record segments that are not recorded yet.
-- Given: listed (item_id bigint, dataset_id bigint, video_id bigint, start_s double, end_s double, ordinal integer,
--   label text)
insert into item (item_id, dataset_id, video_id, start_s, end_s, ordinal, label)
select n.item_id, n.dataset_id, n.video_id, n.start_s, n.end_s, n.ordinal, n.label
from listed n
where not exists (select 1 from item i where i.item_id = n.item_id)
order by n.item_id
