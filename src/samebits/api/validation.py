"""Bodies, read strictly, and what is wrong with one in a sentence that names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from samebits.gateway.json_body import MOST_SHOWN, spelled

# Parts of a location that pydantic adds for the members of a union; no field of ours has such a name.
_BRANCHES: Final = frozenset({"str", "int", "float", "bool", "none", "[key]"})
_BRANCH_STARTS: Final = ("list[", "dict[", "literal[", "constrained-", "function-", "<")


@dataclass(frozen=True)
class Problem:
    """What is wrong with a body.

    Attributes:
        said: a sentence or two for a person.
        param: the field, such as ``messages[0].content``; None for the body as a whole.
        code: for a program.
    """

    said: str
    param: str | None
    code: str

    @property
    def message(self) -> str:
        """What was said, after the name of the field."""
        return f"{self.param or 'body'}: {self.said}"


def first_problem(errors: Sequence[Mapping[str, Any]], skip: int = 1) -> Problem:
    """The first thing that pydantic found, said so that one can act on it.

    Args:
        skip: parts of each location that stand before the names of fields, such as "body".
    """
    error = errors[0]
    path = _path(error["loc"][skip:])
    param = spelled(path)
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return Problem("is not a known parameter. Remove it: nothing is ignored here.", param, "unknown_parameter")
    if error["type"] == "none_required":
        return Problem("is not supported. Leave it out.", param, "unsupported_parameter")
    if error["type"] == "missing":
        return Problem("is missing. Give it.", param, "missing_required_parameter")
    siblings = [e for e in errors if _path(e["loc"][skip:]) == path]  # the other members of a union
    said = "; or ".join(dict.fromkeys(str(e["msg"]).removeprefix("Value error, ").removesuffix(".") for e in siblings))
    given = repr(error.get("input"))
    if len(given) > MOST_SHOWN:
        given = given[:MOST_SHOWN] + "…"
    return Problem(f"{said}. It is {given}.", param, "invalid_value")


def _path(location: Sequence[str | int]) -> tuple[str | int, ...]:
    return tuple(
        part for part in location if isinstance(part, int) or not (part in _BRANCHES or part.startswith(_BRANCH_STARTS))
    )
