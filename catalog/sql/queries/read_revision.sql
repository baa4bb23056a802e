-- The schema's revision.
-- Columns: revision text
select version_num as revision from alembic_version
