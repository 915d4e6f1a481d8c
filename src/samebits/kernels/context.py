"""Where operations run: an instruction set and a pool of threads. Neither can move a bit."""

from __future__ import annotations

import os

from samebits import _core
from samebits.errors import InputError, shown

MAX_THREADS = 1024


def available_isas() -> tuple[str, ...]:
    """Instruction sets that this machine can run, slowest first; the last is the default."""
    return tuple(_core.isas())


def dispatch_table() -> dict[str, dict[str, str]]:
    """For each available instruction set, the instruction that does the work of bf16 and int8 products."""
    return dict(_core.dispatch())


def usable_cpus() -> int:
    """CPUs that this process may use (its affinity, not the machine's count)."""
    return len(os.sched_getaffinity(0))


class Context(_core.Context):
    """A thread pool with the kernels of one instruction set.

    Operations on one context exclude each other. A context does not survive ``fork``.

    Args:
        threads: number of threads, the caller's included; default one per usable CPU.
        isa: one of :func:`available_isas`; default the last.

    Raises:
        InputError: threads out of range, or an instruction set that this machine lacks.
    """

    def __init__(self, threads: int | None = None, isa: str | None = None) -> None:
        if threads is None:
            threads = usable_cpus()
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
            raise InputError(
                f"{shown(threads)} is not a number of threads",
                field="threads",
                remedy=f"Give an integer from 1 to {MAX_THREADS}, or none for one per CPU.",
            )
        isas = available_isas()
        if isa is None:
            isa = isas[-1]
        if not isinstance(isa, str) or isa not in isas:
            raise InputError(
                f"{shown(isa)} is not available here", field="isa", remedy=f"Choose one of: {', '.join(isas)}."
            )
        super().__init__(threads, isa)
