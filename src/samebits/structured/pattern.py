"""Patterns of JSON Schema (ECMA 262) in the dialect of the regex engine that enforces them.

The two differ in what ``.`` and ``\\s`` stand for and in operators inside of brackets; what cannot be said in the other
dialect, or not enforced (look-around, back-references, flags), is refused.
"""

from __future__ import annotations

import re
from typing import Final

MAX_GROUPS: Final = 100  # open at once; the engine's own limit is 250

# ECMA 262 white space and line ends, as the inside of brackets.
_SPACE: Final = r"\t\n\x0b\x0c\r \u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}"
_TOKEN: Final = re.compile(
    r"\\u[0-9A-Fa-f]{4}|\\[pP]\{[^}]*\}|\\c[A-Za-z]|\\.|\(\?<[A-Za-z_]\w*>|\(\?:|\(\?|.", re.DOTALL
)
_OUTSIDE: Final = {".": r"[^\n\r\u{2028}\u{2029}]", r"\s": f"[{_SPACE}]", r"\S": f"[^{_SPACE}]"}
_INSIDE: Final = {r"\s": _SPACE, "[": r"\[", "&": r"\&", "~": r"\~", "#": r"\#"}


class PatternError(ValueError):
    """A pattern cannot be enforced."""


def to_engine(pattern: str) -> str:
    """The pattern in the dialect of the engine.

    Raises:
        PatternError: it has what the engine cannot enforce, or is nested too deeply.
    """
    parts: list[str] = []
    groups, opened = 0, -1  # opened: where the current set of characters begins
    for match in _TOKEN.finditer(pattern):
        token, at = match[0], match.start()
        if token == "(?" and opened < 0:
            raise PatternError(f"{pattern[at : at + 4]!r} (look-around or a flag) is not supported")
        if len(token) == 2 and token[0] == "\\" and token[1] in "123456789kbB":
            raise PatternError(f"{token!r} (a back-reference or a look-around) is not supported")
        if token.startswith(r"\c") and len(token) == 3:
            token = f"\\x{ord(token[2]) % 32:02x}"
        if opened >= 0:
            if token == r"\S":
                raise PatternError(r"'\S' inside of brackets is not supported")
            if token == "]":
                if pattern[opened:at] in ("[", "[^"):  # empty in ECMA 262; the engine would take it for a member
                    raise PatternError("a set without characters is not supported")
                opened = -1
            elif token == "-" and parts[-1] == "-":
                token = r"\-"
            parts.append(_INSIDE.get(token) or (re.escape(token) if token.startswith("(") else token))
            continue
        if token == "[":
            opened = at
        groups += token.startswith("(") - (token == ")")
        if groups > MAX_GROUPS:
            raise PatternError(f"more than {MAX_GROUPS} groups are open at once")
        parts.append(_OUTSIDE.get(token, token))
    return "".join(parts)
