"""What is written to find out whether anything can be."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "probe",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("filler", sa.LargeBinary, nullable=False),
    )
