"""The command line: one verb a file. Exit codes: 0 good, 1 a difference was found, 2 usage or input, 3 not measured."""

from __future__ import annotations

import sys

EXIT_DIFFERENCE, EXIT_INPUT, EXIT_NOT_MEASURED = 1, 2, 3


def main() -> None:
    """Runs the command line and exits."""
    from samebits.cli.app import app
    from samebits.errors import MeasurementError, SamebitsError

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
