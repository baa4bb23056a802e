-- Which files of datasets came, went or were replaced last, and which classes were renumbered?
select kind, count, detail, at_s
from events
where kind in ('videos_added', 'videos_removed', 'videos_replaced', 'videos_returned', 'videos_renumbered')
order by at_s desc, event_id desc
limit 5
