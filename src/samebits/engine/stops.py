"""Text that can be shown now, given stop texts that may still be completed."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Cuts a growing text before the first stop text.

    The first match is the one that begins earliest; of stops that begin together, the shortest, which completes first.
    So the stop that ends a text depends on the text and never on the pieces it came in. Text is held back only while it
    may be the beginning of a stop, so streamed pieces joined equal the text as a whole.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted(stops, key=len)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Adds text; returns what is certain not to belong to a stop. After a match: always empty."""
        if self.matched is not None:
            return ""
        self._held += text
        at = min((i for i in map(self._held.find, self._stops) if i >= 0), default=-1)
        pending = self._pending()
        if at >= 0 and (pending is None or at <= pending):
            self.matched = next(s for s in self._stops if self._held.startswith(s, at))
            shown, self._held = self._held[:at], ""
            return shown
        cut = len(self._held) if pending is None else pending
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def finish(self) -> str:
        """The text held back when the output ends without completing it, cut before a later, complete stop."""
        held, self._held = self._held, ""
        if self.matched is not None:
            return ""
        at = min((i for i in map(held.find, self._stops) if i >= 0), default=-1)
        if at >= 0:
            self.matched = next(s for s in self._stops if held.startswith(s, at))
            held = held[:at]
        return held

    def _pending(self) -> int | None:
        """Where an incomplete stop may begin at the end of the held text."""
        longest = max(map(len, self._stops), default=0)
        for i in range(max(0, len(self._held) - longest + 1), len(self._held)):
            tail = self._held[i:]
            if any(len(stop) > len(tail) and stop.startswith(tail) for stop in self._stops):
                return i
        return None
