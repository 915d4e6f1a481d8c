"""Opening a database: SQLite in WAL mode with full synchronisation, or PostgreSQL with synchronous commits."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url

from samebits.errors import InputError, LedgerError
from samebits.ledger.tables import READABLE, REVISION

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

BUSY_S: Final = 60.0  # wait for another process that writes
LOCK: Final = 0x73616D6562697473  # "samebits", the PostgreSQL lock under which migrations run
_REMEDY: Final = "Give sqlite:///FILE or postgresql://USER@HOST/DATABASE."


def parse_url(url: str) -> URL:
    """The URL of a ledger, with the driver that is used.

    Raises:
        InputError: it is none; the URL is not shown, since it may hold a password.
    """
    try:
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise InputError("is no database URL", field="ledger.url", remedy=_REMEDY) from None
    if parsed.drivername == "sqlite":
        if not parsed.database or parsed.database == ":memory:" or parsed.host:
            raise InputError("names no file", field="ledger.url", remedy=_REMEDY)
        if parsed.query:
            raise InputError(f"has options: {', '.join(parsed.query)}", field="ledger.url", remedy=_REMEDY)
        return parsed
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    raise InputError(f"{parsed.drivername} is not supported", field="ledger.url", remedy=_REMEDY)


def connect(url: str, *, readonly: bool) -> sa.Engine:
    """An engine on a database whose tables are of today's form.

    Args:
        readonly: change nothing, and read an older form as it is; otherwise what does not exist is made.

    Raises:
        InputError: the URL is wrong, there is no ledger, or it was written by a later version.
        LedgerError: the database cannot be reached or opened.
    """
    parsed = parse_url(url)
    if parsed.drivername == "sqlite":
        path = Path(str(parsed.database))
        if readonly and not path.is_file():
            raise InputError(f"there is no file {path}", field="ledger.url", remedy="Name an existing ledger.")
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent}", field="ledger.url", remedy="Create it.")
    engine = (_sqlite if parsed.drivername == "sqlite" else _postgresql)(parsed, readonly)
    try:
        _check_form(engine, readonly)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _sqlite(url: URL, readonly: bool) -> sa.Engine:
    path = Path(str(url.database)).absolute()
    first: list[tuple[int, int]] = []  # the file that was opened first; later connections are to none but that

    def open_file() -> sqlite3.Connection:
        _check_file(path, first)
        uri = f"{path.as_uri()}?mode={_mode(path) if readonly else 'rw' if first else 'rwc'}"
        return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)

    # Parameters are hidden, since they hold what was asked and answered, and errors get logged.
    engine = sa.create_engine(url, creator=open_file, hide_parameters=True)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        if readonly:
            return
        _turn_to_wal(connection)
        first[:] = first or [_identity(path)]
        # A pruned body is overwritten. A commit returns when the disk has the log.
        for pragma in ("secure_delete=ON", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        _check_file(path, first)
        # A writer takes its lock at once: one that has read first could not wait for another.
        writes = connection.get_execution_options().get("samebits_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _check_file(path: Path, first: list[tuple[int, int]]) -> None:
    """Refuses to go on without the file that was opened: SQLite would write into one that has no name any more, and is
    gone with the process.

    Raises:
        LedgerError: it was removed, or another one stands in its place.
    """
    try:
        if not first or _identity(path) == first[0]:
            return
        said = "another file stands in place of the one that was opened"
    except OSError as error:
        said = f"its file cannot be found any more ({error.strerror})"
    raise LedgerError(f"the ledger cannot be used: {said}; put it back, or start again")


def is_part(engine: sa.Engine, path: Path) -> bool:
    """Whether a file is the database, or one of those that SQLite keeps beside it."""
    if engine.dialect.name != "sqlite":
        return False
    place = Path(str(engine.url.database)).resolve()
    parts = [place.with_name(place.name + end) for end in ("", "-wal", "-shm", "-journal")]
    return path.resolve() in parts or (path.exists() and any(p.exists() and path.samefile(p) for p in parts))


def _turn_to_wal(connection: sqlite3.Connection) -> None:
    """Makes a new file one with a log; where another process does the same, SQLite does not wait but refuses."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.005, 0.02))
        else:
            return


def _mode(path: Path) -> str:
    """How to read a file: SQLite shares it with writers by files beside it, which a read-only medium cannot have."""
    beside = path.with_name(path.name + "-wal")
    return "ro" if os.access(path.parent, os.W_OK) or beside.exists() else "ro&immutable=1"


def _postgresql(url: URL, readonly: bool) -> sa.Engine:
    return sa.create_engine(
        url,
        hide_parameters=True,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": 10,
            "tcp_user_timeout": int(1000 * BUSY_S),  # a machine that is gone says nothing, and nobody waits for ever
            "options": f"-c synchronous_commit=on -c default_transaction_read_only={'on' if readonly else 'off'} "
            f"-c lock_timeout={BUSY_S:.0f}s",
        },
    )


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that writes.

    Raises:
        LedgerError: it could not be carried out; unless that is said to be unknown, nothing was written.
    """
    with _translated(engine, "written"), engine.connect() as connection:
        connection.execution_options(samebits_writes=True)
        with connection.begin():
            yield connection


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that sees one state of the database, whatever is written meanwhile.

    Raises:
        LedgerError: it cannot be read.
    """
    with _translated(engine, "read"), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with connection.begin():
            yield connection


def insert_into(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insertion that can say what to do where the row is there: SQL has no common way to."""
    from sqlalchemy.dialects import postgresql, sqlite

    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


@contextmanager
def _translated(engine: sa.Engine, done: str) -> Iterator[None]:
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise LedgerError(
            f"the ledger cannot be {done}: {type(error.orig).__name__}: {_first_line(error.orig)}",
            lost=engine.dialect.name == "postgresql" and (error.connection_invalidated or _went_away(error.orig)),
        ) from None


def _went_away(error: Any) -> bool:
    """Whether a PostgreSQL server cannot be reached, goes down or starts up."""
    import psycopg

    state = getattr(error, "sqlstate", None)
    return isinstance(error, psycopg.OperationalError) and (state is None or state[:2] == "08" or state[:3] == "57P")


def _first_line(error: Any) -> str:
    """What the database says; the lines after the first may quote values."""
    return str(error).strip().partition("\n")[0]


def _check_form(engine: sa.Engine, readonly: bool) -> None:
    with reading(engine) as connection:
        found = _revision(connection)
    if found == REVISION:
        return
    if readonly:
        if found in READABLE:
            return
        if found is None:
            raise InputError("holds no ledger", field="ledger.url", remedy="Name a ledger.")
        raise _later(found)
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        found = _revision(connection)  # another process may have been first
        if found != REVISION:
            _migrate(connection, found)


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


def _migrate(connection: sa.Connection, found: str | None) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "samebits.ledger:migrations")
    config.attributes["connection"] = connection
    if found is not None and found not in {s.revision for s in ScriptDirectory.from_config(config).walk_revisions()}:
        raise _later(found)
    command.upgrade(config, REVISION)


def _later(found: str) -> InputError:
    return InputError(
        f"was written by a later version of samebits (form {found})", field="ledger.url", remedy="Upgrade samebits."
    )
