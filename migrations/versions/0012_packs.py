"""Kept pictures of images lie together in packs: which picture is where.

Revision 0012, after 0011.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pack_part",
        sa.Column("object_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("video_key", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("first_byte", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("object_id", "place"),
    )


def downgrade() -> None:
    op.drop_table("pack_part")
