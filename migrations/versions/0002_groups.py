"""Tasks over one dataset are planned together.

A generation remembers what it shares with the group, and an epoch how far its order is settled.

Revision 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("generation", sa.Column("group_epoch", sa.Integer(), autoincrement=False, nullable=True))
    op.add_column("generation", sa.Column("grid", sa.Integer(), autoincrement=False, nullable=True))
    op.create_table(
        "settled",
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("positions", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "epoch"),
    )


def downgrade() -> None:
    op.drop_table("settled")
    op.drop_column("generation", "grid")
    op.drop_column("generation", "group_epoch")
