"""Positions say the epoch, deadlines leave out epochs that are over, and images say whether EXIF counts: views alone.

Every revision builds all views anew when it is applied, so there is nothing else to do. Revision 0014, after 0013.
"""

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Tables stay as they are."""


def downgrade() -> None:
    """Tables stay as they are."""
