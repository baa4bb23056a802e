"""Where a task is, is known of each of its readers: of the parts of a rank too, and when that was.

Revision 0006, after 0005.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_PLACE = "epoch, iteration, seq, seconds_per_iteration"


def upgrade() -> None:
    op.execute(f"create table progress_before as select task_id, rank, {_PLACE} from task_progress")
    op.drop_table("task_progress")
    op.create_table(
        "task_progress",
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("part", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("iteration", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seconds_per_iteration", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("seen_at", sa.Double(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "rank", "part"),
    )
    op.execute(
        f"insert into task_progress (task_id, rank, part, {_PLACE}, seen_at) select task_id, rank, 0, {_PLACE}, 0 "
        "from progress_before"
    )
    op.drop_table("progress_before")


def downgrade() -> None:
    op.execute(f"create table progress_before as select task_id, rank, {_PLACE} from task_progress where part = 0")
    op.drop_table("task_progress")
    op.create_table(
        "task_progress",
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("iteration", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seconds_per_iteration", sa.Double(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "rank"),
    )
    op.execute(
        f"insert into task_progress (task_id, rank, {_PLACE}) select task_id, rank, {_PLACE} from progress_before"
    )
    op.drop_table("progress_before")
