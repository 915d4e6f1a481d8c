"""What alembic runs: the migrations, in the transaction of the connection that it is handed."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transaction_per_migration=False)
context.run_migrations()
