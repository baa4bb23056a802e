"""No table changes: ``positions`` leaves out ranks that are gone, and views are built anew.

Revision 0007, after 0006.
"""

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Views are built after every upgrade, so there is nothing else to do."""


def downgrade() -> None:
    """Nothing to take back."""
