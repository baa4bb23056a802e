-- Forget the leases of an owner that is gone; only for a catalog with one owner.
delete from lease
