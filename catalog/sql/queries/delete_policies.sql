-- Forget the eviction policies of the last opening.
delete from policy
