"""Objects are kept for epochs that nobody has planned yet: how often each is expected to be of use there.

Revision 0009, after 0008.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "expected_use",
        sa.Column("object_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("refs", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("object_id"),
    )


def downgrade() -> None:
    op.drop_table("expected_use")
