"""The command line: one verb a file.

Exit codes: 0 good, 1 a difference was found, 2 usage, input or output, 3 not measured, 130 interrupted.

Text is UTF-8 on every stream, whatever the locale says: the same command writes the same bytes on any machine.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from typing import TextIO

EXIT_DIFFERENCE, EXIT_INPUT, EXIT_NOT_MEASURED, EXIT_INTERRUPTED = 1, 2, 3, 130


def main() -> None:
    """Runs the command line and exits."""
    warnings.showwarning = _show_warning
    _open_streams()
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        code = _output_failed(error)
    except KeyboardInterrupt:  # also while modules are still being loaded, which takes a second
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """Runs a verb; returns the exit code."""
    import typer

    from samebits.cli.app import app
    from samebits.errors import MeasurementError, SamebitsError

    command = typer.main.get_command(app)
    try:
        # Not by typer's own main, which answers a closed pipe with exit code 1.
        with command.make_context("samebits", arguments) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except typer.TyperException as error:
        with contextlib.suppress(OSError):
            error.show()  # type: ignore[attr-defined]  # its public base class does not tell of it
        return EXIT_INPUT
    except MeasurementError as error:
        _say(f"samebits: {error}")
        return EXIT_NOT_MEASURED
    except SamebitsError as error:
        _say(f"samebits: {error}")
        return EXIT_INPUT
    return 0


def _open_streams() -> None:
    """Makes all three streams UTF-8; one that was closed fails where it is used, and is not passed over."""
    if sys.stdin is None:
        sys.stdin = open(os.open(os.devnull, os.O_WRONLY), encoding="utf-8")  # noqa: SIM115 - lives as long as we
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:  # nobody wants to hear; print would take None for standard output
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")


def _output_failed(error: OSError) -> int:
    """Says why, unless the reader went away by its own will."""
    if not isinstance(error, BrokenPipeError):
        _say(f"samebits: {error.filename or 'standard output'}: {error.strerror}. Give a place that can be written.")
    # What is still in the buffer has no place to go, and Python would try again at its end and exit with 120.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_INPUT


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # there is no other place to say that this one fails; the exit code stays
        print(text, file=sys.stderr)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning as users read it, without the place in the code."""
    del category, filename, lineno, file, line
    _say(f"samebits: warning: {message}")
