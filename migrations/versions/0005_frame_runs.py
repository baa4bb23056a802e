"""No table changes: catalogs of earlier releases get the relation ``frame_runs``, since views are built anew.

Revision 0005, after 0004.
"""

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Views are built after every upgrade, so there is nothing else to do."""


def downgrade() -> None:
    """Nothing to take back."""
