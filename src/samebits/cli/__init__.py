"""The command line: one verb a file. Exit codes: 0 good, 1 a difference was found, 2 usage or input, 3 not measured."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

EXIT_DIFFERENCE, EXIT_INPUT, EXIT_NOT_MEASURED = 1, 2, 3


def main() -> None:
    """Runs the command line and exits."""
    from samebits.cli.app import app
    from samebits.errors import MeasurementError, SamebitsError

    warnings.showwarning = _show_warning
    try:
        app()
    except MeasurementError as error:
        print(f"samebits: {error}", file=sys.stderr)
        sys.exit(EXIT_NOT_MEASURED)
    except SamebitsError as error:
        print(f"samebits: {error}", file=sys.stderr)
        sys.exit(EXIT_INPUT)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(EXIT_INPUT)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning as users read it, without the place in the code."""
    del category, filename, lineno, line
    print(f"samebits: warning: {message}", file=sys.stderr if file is None else file)
