-- Which files of datasets came, went or were replaced last?
select kind, count, detail, at_s
from events
where kind in ('videos_added', 'videos_removed', 'videos_replaced', 'videos_returned')
order by at_s desc, event_id desc
limit 5
