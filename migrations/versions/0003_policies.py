"""Eviction policies are rows, and an eviction says which policy chose it and why.

Revision 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("eviction", sa.Column("policy", sa.Text(), autoincrement=False, nullable=True))
    op.add_column("eviction", sa.Column("detail", sa.Text(), autoincrement=False, nullable=True))
    op.create_table(
        "policy",
        sa.Column("name", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("purpose", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("text", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("active", sa.Boolean(), autoincrement=False, nullable=False),
        sa.Column("problem", sa.Text(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )


def downgrade() -> None:
    op.drop_table("policy")
    op.drop_column("eviction", "detail")
    op.drop_column("eviction", "policy")
