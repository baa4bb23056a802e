"""What work has cost is added up for good: core seconds, seconds and joules of each class and stage.

Revision 0010, after 0009.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "used",
        sa.Column("kind", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("stage", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("cpu_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("wall_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("joules", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("since_s", sa.Double(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("kind", "stage"),
    )


def downgrade() -> None:
    op.drop_table("used")
