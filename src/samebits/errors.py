"""Every error that samebits raises on purpose.

    SamebitsError
    ├── InputError (also ValueError)      the caller's input is wrong: names the field and the remedy; exit code 2
    │   ├── ModelError                    the model file or folder cannot be used
    │   └── ContextLengthError            prompt (plus max_tokens) does not fit the context; counts shown
    ├── NumericsError                     logits of a request are not finite: the request fails, alone
    ├── CapacityError                     a request can never fit the KV memory it was given
    ├── OverloadedError                   too much is waiting already; the same request may be sent again later
    ├── EngineFailedError                 the engine broke or was closed, or this process was forked from its own
    ├── ConstraintError                   a constraint allows no token, or ran into its limits: the request fails, alone
    ├── OutputInvalid                     a finished output does not satisfy what was asked of its structure
    ├── LedgerError                       the ledger cannot be read or written: what was to be recorded is not
    ├── ReceiptInvalid                    a receipt is not what its signer signed
    └── MeasurementError                  a check could not be carried out; exit code 3

A broken invariant of samebits itself is an ``AssertionError``: a bug of ours, not an error of the caller.
"""

from __future__ import annotations

from typing import Final

_MOST_SHOWN: Final = 80  # characters of a value in a message


def shown(value: object) -> str:
    """A wrong value as a message shows it: its ``repr``, cut where it is long, or its kind where it has none."""
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to write very long ones
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # any code may stand behind it, or a very long integer inside
        return f"a value of the type {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


class SamebitsError(Exception):
    """Root of all deliberate errors."""


class InputError(SamebitsError, ValueError):
    """The caller's input is wrong.

    Attributes:
        message: what is wrong.
        field: the parameter, file or key at fault.
        remedy: what to do about it.
    """

    def __init__(self, message: str, *, field: str, remedy: str) -> None:
        super().__init__(f"{field}: {message}. {remedy}")
        self.message = message
        self.field = field
        self.remedy = remedy


class ModelError(InputError):
    """A model file or folder is missing, damaged or not supported."""


class ContextLengthError(InputError):
    """The prompt and the requested output do not fit the model's context."""


class NumericsError(SamebitsError):
    """The logits of one request are not all finite."""


class CapacityError(SamebitsError):
    """A single request needs more KV pages than exist."""


class OverloadedError(SamebitsError):
    """The queue is full."""


class EngineFailedError(SamebitsError):
    """The engine does not run any more."""


class ConstraintError(SamebitsError):
    """A request's constraint allows no token, or deciding what it allows exceeds its limits."""


class OutputInvalid(SamebitsError):  # noqa: N818 - a verdict, not a fault
    """An output does not satisfy what was asked of its structure.

    Attributes:
        incomplete: the output may be the beginning of a valid one, cut short.
        path: where in the output, as a JSON pointer; empty for the whole.
    """

    def __init__(self, message: str, *, incomplete: bool = False, path: str = "") -> None:
        super().__init__(f"output{f' at {path}' if path else ''}: {message}")
        self.incomplete = incomplete
        self.path = path


class LedgerError(SamebitsError):
    """The ledger cannot be read or written.

    Attributes:
        lost: the connection to the database was lost, so that the same may succeed later.
    """

    def __init__(self, message: str, *, lost: bool = False) -> None:
        super().__init__(message)
        self.lost = lost


class ReceiptInvalid(SamebitsError):  # noqa: N818 - a verdict, not a fault
    """A receipt does not say what its signer signed, or says nothing."""

    def __init__(self, message: str) -> None:
        super().__init__(f"the receipt is not valid: {message}")


class MeasurementError(SamebitsError):
    """A check could not be carried out, so it has no result."""
