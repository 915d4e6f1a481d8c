"""Bodies, read strictly, and what is wrong with one in a sentence that names the field."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from samebits.gateway.json_body import MOST_SHOWN, read_json

# Parts of a location that pydantic adds for the members of a union; no field of ours has such a name.
_BRANCHES: Final = frozenset({"str", "int", "float", "bool", "none"})
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


class _StrictRequest(Request):
    """A request whose JSON was read by ``read_json``."""

    parsed: Any = None

    async def json(self) -> Any:
        return self.parsed


class StrictRoute(APIRoute):
    """A route whose body is read by ``read_json``, and only if it is sent as JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that FastAPI makes, given a request that is read already."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            if self.body_field is None:
                return await handler(request)
            # A page of another site can make a browser send text/plain here unasked, but not application/json.
            sent_as = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if sent_as != "application/json":
                raise HTTPException(415, f"the body is sent as {sent_as or 'nothing'!r}, not as 'application/json'")
            own = _StrictRequest(request.scope, request.receive)
            own.parsed = read_json(await own.body())
            return await handler(own)

        return strict


def first_problem(errors: Sequence[Mapping[str, Any]], skip: int = 1) -> Problem:
    """The first thing that pydantic found, said so that one can act on it.

    Args:
        skip: parts of each location that stand before the names of fields, such as "body".
    """
    error = errors[0]
    path = _path(error["loc"][skip:])
    param = _spelled(path)
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


def _spelled(path: Sequence[str | int]) -> str | None:
    if not path:
        return None
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
