"""What is still to come is told by epoch and iteration, not by `seq`, which is in no order where epochs get shorter.

Views change, and PostgreSQL's index of uses; an error of no task is not called one of a task. Revision 0015, after
0014.
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_index("use_by_seq", "object_use")
        op.create_index("use_by_place", "object_use", ["task_id", "epoch", "iteration"], unique=False)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_index("use_by_place", "object_use")
        op.create_index("use_by_seq", "object_use", ["task_id", "seq"], unique=False)
