"""Orders are made of items: segments of videos, beside whole videos, whose number is that of the video.

Revision 0008, after 0007.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "item",
        sa.Column("item_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("dataset_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("video_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("start_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("end_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("label", sa.Text(), autoincrement=False, nullable=True),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.create_index("item_by_id", "item", ["item_id"], unique=True)
        op.create_index("item_by_dataset", "item", ["dataset_id"], unique=False)


def downgrade() -> None:
    op.drop_table("item")
