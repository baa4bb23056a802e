"""An order that is a function of recorded values is one row an epoch, beside the items that it is an order of.

Revision 0013, after 0012.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "epoch_order",
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("items", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("word", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("digest", sa.Text(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "epoch"),
    )
    op.create_table(
        "version_run",
        sa.Column("version", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("first_place", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("items", sa.BigInteger(), autoincrement=False, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.create_index("version_run_by_place", "version_run", ["version", "first_place"], unique=True)


def downgrade() -> None:
    op.drop_table("version_run")
    op.drop_table("epoch_order")
