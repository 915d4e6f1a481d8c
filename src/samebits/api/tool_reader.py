"""Telling calls from text while an answer is being written."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.api.tools import Call, CallError, Toolbox, read_calls
from samebits.engine.request import FinishReason


@dataclass(frozen=True)
class Ending:
    """What comes with the end of an answer.

    Attributes:
        text: the rest of the text.
        calls: what it calls; then ``text`` is empty.
        error: why a text that announced calls is none.
    """

    text: str
    calls: tuple[Call, ...] = ()
    error: str | None = None


class ToolReader:
    """Reads one answer. Text before calls is shown as it comes; from where calls may begin it is held back to the end.

    White space at the beginning is held back too, so that an answer of calls alone has no text.
    """

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._opening = toolbox.dialect.opening
        self._held = ""
        self._shown = False
        self._calling = False
        if toolbox.forced:
            self._held, self._calling = toolbox.beginning, True

    def push(self, text: str) -> str:
        """Takes text; returns what may be shown."""
        self._held += text
        if self._calling:
            return ""
        content = self._held.lstrip()
        if self._toolbox.dialect.layout == "objects":
            self._calling = not self._shown and content.startswith("{")
            return "" if self._calling or not content else self._show(len(self._held))
        at = self._held.find(self._opening)
        if at >= 0:
            self._calling = True
        else:
            at = len(self._held) - _overlap(self._held, self._opening)
        return self._show(at) if self._shown or self._held[:at].strip() else ""

    def _show(self, end: int) -> str:
        shown, self._held = self._held[:end], self._held[end:]
        self._shown = self._shown or bool(shown)
        return shown

    def finish(self, reason: FinishReason) -> Ending:
        """Takes the end. ``length`` means that the answer was cut, so it holds no calls for certain."""
        if not self._calling:
            return Ending(self._held)
        text = self._held
        try:
            if reason != "stop":
                raise CallError("the answer was cut at max_tokens")
            return Ending("", read_calls(text.lstrip(), self._toolbox))
        except CallError as error:
            return Ending(text.removeprefix(self._toolbox.beginning), error=str(error))


def _overlap(text: str, opening: str) -> int:
    """Length of the longest end of the text that begins the opening."""
    return next((n for n in range(min(len(text), len(opening) - 1), 0, -1) if text.endswith(opening[:n])), 0)
