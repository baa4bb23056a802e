-- Expect no use any more of epochs that are not planned.
delete from expected_use
