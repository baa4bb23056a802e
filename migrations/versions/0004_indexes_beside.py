"""Packet indexes lie in a file beside the database; a row has what opening, planning and times need.

Revision 0004, after 0003. Indexes that the database held are not moved: ``index_at`` is -1 where there was one, and
such a video is indexed again when it is decoded.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_COLUMNS = ("index_at", "time_first", "time_step", "time_numerator", "time_denominator")


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("video", sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=True))
    op.execute("update video set index_at = -1 where index_blob is not null")
    op.drop_column("video", "index_blob")


def downgrade() -> None:
    op.add_column("video", sa.Column("index_blob", sa.LargeBinary(), autoincrement=False, nullable=True))
    for name in _COLUMNS:
        op.drop_column("video", name)
