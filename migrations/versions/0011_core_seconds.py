"""Measured work says how much of it was work of a core; the rest was waited for.

Revision 0011, after 0010.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_COLUMNS = "op, size_bucket, codec, tier, n, seconds, bytes"


def upgrade() -> None:
    # What was measured before was the work of a core but for what came over a network, which was waited for.
    core = "case when tier in ('remote', 'source') then 0 else seconds end"
    op.execute(f"create table io_sample_before as select {_COLUMNS} from io_sample")
    op.drop_table("io_sample")
    _create(sa.Column("cpu_s", sa.Double(), autoincrement=False, nullable=False))
    op.execute(f"insert into io_sample ({_COLUMNS}, cpu_s) select {_COLUMNS}, {core} from io_sample_before")
    op.drop_table("io_sample_before")


def downgrade() -> None:
    op.execute(f"create table io_sample_before as select {_COLUMNS} from io_sample where op <> 'read'")
    op.drop_table("io_sample")
    _create()
    op.execute(f"insert into io_sample ({_COLUMNS}) select {_COLUMNS} from io_sample_before")
    op.drop_table("io_sample_before")


def _create(*further: sa.Column[float]) -> None:
    op.create_table(
        "io_sample",
        sa.Column("op", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("size_bucket", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("codec", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("tier", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("n", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seconds", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        *further,
        sa.PrimaryKeyConstraint("op", "size_bucket", "codec", "tier"),
    )
