"""Records and heads."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "records",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("time_ns", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.String(140), nullable=False),
        sa.Column("body_digest", sa.String(140), nullable=False),
        sa.Column("body", sa.LargeBinary),
    )
    op.create_index("records_id", "records", ["id"])
    op.create_table(
        "heads",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.String(140), nullable=False),
    )
