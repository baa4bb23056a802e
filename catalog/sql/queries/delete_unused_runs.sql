-- Forget the items of versions of which no order is left.
delete from version_run where version not in (select o.version from epoch_order o)
