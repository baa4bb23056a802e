-- Forget the leases of an owner that is gone.
delete from lease
