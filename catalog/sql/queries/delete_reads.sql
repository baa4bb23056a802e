-- Forget what devices were measured to give.
delete from io_sample
where op = 'read'
