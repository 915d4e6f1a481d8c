"""What upstreams were when they answered last."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "baselines",
        sa.Column("route", sa.Text, primary_key=True),
        sa.Column("address", sa.Text, primary_key=True),
        sa.Column("asked", sa.Text, primary_key=True),
        sa.Column("model", sa.Text),
        sa.Column("fingerprint", sa.Text),
        sa.Column("time_ns", sa.BigInteger, nullable=False),
    )
