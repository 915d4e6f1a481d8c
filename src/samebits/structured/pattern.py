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
    r"\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[pP]\{[^}]*\}|\\c[A-Za-z]|\\.|\(\?<[A-Za-z_]\w*>|\(\?:|\(\?|.", re.DOTALL
)
_OUTSIDE: Final = {".": r"[^\n\r\u{2028}\u{2029}]", r"\s": f"[{_SPACE}]", r"\S": f"[^{_SPACE}]"}
# Inside of JSON no control character without a short escape is written. llguidance 1.9.1 passes over one that stands
# alone, and takes a set of all 32 for one with the quote and the backslash: so none stands alone, and no set has all.
_UNWRITTEN: Final = r"\x02\x03"
_UNESCAPED: Final = frozenset({*map(chr, range(32)), "\x7f"} - set("\b\t\n\f\r"))
_CONTROLS: Final = (r"\p", r"\P", r"\x", r"\u", r"\v")  # members that may be some
_INSIDE: Final = {r"\s": _SPACE, "[": r"\[", "&": r"\&", "~": r"\~", "#": r"\#"}

# For the size of a pattern: an atom, a repetition, or a bracket.
_PIECE: Final = re.compile(
    r"\\[pP]\{[^}]*\}|\\.|\[(?:\\.|[^\]\\])*\]|\{(?P<least>\d{1,9})(?:,(?P<most>\d{0,9}))?\}|\(\?<\w+>|\(\?<?[:=!]|.",
    re.DOTALL,
)
_CATEGORY: Final = 256  # units of a Unicode category: 30 KB were seen
_SET: Final = 8  # of any other set of characters: about 400 bytes


class PatternError(ValueError):
    """A pattern cannot be enforced."""


def to_engine(pattern: str, *, in_json: bool = False) -> str:
    """The pattern in the dialect of the engine.

    Args:
        in_json: it is about a string within JSON.

    Raises:
        PatternError: it has what the engine cannot enforce, or is nested too deeply.
    """
    parts: list[str] = []
    groups, opened, first = 0, -1, 0  # opened: where the current set of characters begins; first: its part
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
                if in_json and pattern[opened + 1] == "^":
                    token = r"\x01]"
                elif in_json and any(part[:2] in _CONTROLS or part in _UNESCAPED for part in parts[first:]):
                    parts[first], token = "[[", _UNWRITTEN + r"]--[\x01]]"
                opened = -1
            elif token == "-" and parts[-1] == "-":
                token = r"\-"
            parts.append(_INSIDE.get(token) or (re.escape(token) if token.startswith("(") else token))
            continue
        if token == "[":
            opened, first = at, len(parts)
        elif in_json and _character(token) in _UNESCAPED:
            token = f"[{_UNWRITTEN}]"
        elif in_json and token[:2] in (r"\p", r"\P"):
            token = rf"[{token}--[\x01]]"
        groups += token.startswith("(") - (token == ")")
        if groups > MAX_GROUPS:
            raise PatternError(f"more than {MAX_GROUPS} groups are open at once")
        parts.append(_OUTSIDE.get(token, token))
    return "".join(parts)


def _character(token: str) -> str:
    """The character that a token outside of sets stands for; empty for another token."""
    if token[:2] in (r"\x", r"\u") and len(token) > 2:
        return chr(int(token[2:], 16))
    return "\v" if token == r"\v" else token if len(token) == 1 else ""


def pattern_size(pattern: str) -> int:
    """About how large a pattern is when every repetition is written out, in units of one letter.

    A regex engine that works so takes some 120 bytes for each: forty characters can ask for gigabytes.
    """
    sums, last = [0], 0  # sums: of the groups that are open; last: of what a repetition would repeat
    for piece in _PIECE.finditer(pattern):
        token = piece[0]
        if token[0] == "(":
            sums.append(0)
            last = 0
        elif token == ")" and len(sums) > 1:
            last = sums.pop()
            sums[-1] += last
        elif piece["least"] is not None:
            times = max(1, int(piece["least"]), int(piece["most"] or 0))
            sums[-1] += last * (times - 1)
            last *= times
        elif token not in ("*", "+", "?"):
            last = _units(token)
            sums[-1] += last
    return sum(sums)


def _units(atom: str) -> int:
    categories = atom.count(r"\p") + atom.count(r"\P")
    if categories:
        return _CATEGORY * categories
    return _SET + len(atom) if len(atom) > 1 or atom == "." or not atom.isascii() else 1
