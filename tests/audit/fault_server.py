"""The pure stub model behind HTTP: a server that flips answers at a known rate under a known circumstance."""

from __future__ import annotations

import itertools
from collections import defaultdict

from stub_server import BACKGROUND, Answer, Incoming, Stub

from samebits.audit.plan import Plan
from samebits.audit.stub import Fault, Seen, StubModel


def fault_server(fault: Fault, seed: int) -> Stub:
    """A server that sees what a server can see: its own traffic and cache. Its clock counts the requests that are not
    background load. Chance comes from the count of those with the same prompt: neither load nor the order in which
    requests in flight together arrive moves anybody's luck, so an audit finds the same each time.
    """
    model, clock = StubModel(fault, seed), itertools.count()
    tickets: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
    # Long enough for those that are sent together to be there together.
    delay = 0.02 if fault.cause == "concurrency" else 0.002

    def answer(incoming: Incoming) -> Answer:
        is_background = incoming.prompt.startswith(BACKGROUND)
        now = 0 if is_background else next(clock)
        seen = Seen(
            in_flight=incoming.in_flight - incoming.background,
            background=incoming.background,
            cached=incoming.cached,
            streamed=bool(incoming.body.get("stream")),
            elapsed=float(now),
        )
        found = model.answer(incoming.prompt, seen, next(tickets[incoming.prompt]))
        return Answer(found.text, delay=0.02 if is_background else delay, fingerprint=found.fingerprint)

    return Stub(answer)


def second_time(plan: Plan) -> float:
    """The reading of that clock when the second block of time begins."""
    count = len(plan.probes())
    for block in plan.blocks():
        if dict(block.condition)["time"] != "0":
            return float(count)
        count += block.size + (len(block.order) if block.warm else 0)
    raise AssertionError("the plan has one block of time")
