"""A process that is killed: appends from several threads, and says which records are acknowledged.

Each line on standard output is one acknowledged record: tenant, position, hash, id. It is written after `append`
has returned, so what was said must be there whatever happens to this process.
"""

from __future__ import annotations

import itertools
import sys
import threading

from tests.ledger.conftest import make_entry

from samebits.ledger import Ledger


def main(url: str, round_: int, threads: int) -> None:
    ledger, numbers = Ledger.open(url), itertools.count(round_ * 1_000_000)

    def run(thread: int) -> None:
        while True:
            batch = [make_entry(next(numbers), tenant=f"t{thread % 2}") for _ in range(1 + thread % 3)]
            said = "".join(f"{r.tenant} {r.seq} {r.hash} {r.id}\n" for r in ledger.append(batch))
            sys.stdout.write(said)
            sys.stdout.flush()

    for thread in range(threads):
        threading.Thread(target=run, args=(thread,)).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
