"""What canonical JSON loses of a value, so that it can be sent again exactly as it came.

The order of members decides in which order a schema's properties are written, and how a template shows a tool: it moves
bits. So does the difference between 1 and 1.0 in a schema, and an upstream is sent more digits than a double has. None
of these is part of the digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from samebits.ledger.canonical import EXACT
from samebits.ledger.spelled import Spelled, number

# Where a value stands: the place of what holds it, and its name or number there.
_Place = tuple["_Place | None", str | int]


def lost(value: Any) -> dict[str, Any]:
    """What `restored` needs beside the canonical form.

    Returns:
        ``order``: of each object whose members are not sorted, its number (objects counted from 0 in the order of the
        canonical text), and for each member as it came its place among the sorted ones. ``numbers``: JSON pointer to
        the digits of each number that canonical JSON writes in another way.
    """
    order: list[list[int]] = []
    numbers: dict[str, str] = {}
    objects = 0

    def walk(item: Any, place: _Place | None) -> None:
        nonlocal objects
        if isinstance(item, dict):
            names = _sorted(item)
            if names != list(item):
                rank = {name: i for i, name in enumerate(names)}
                order.append([objects, *(rank[name] for name in item)])
            objects += 1
            for name in names:
                walk(item[name], (place, name))
        elif isinstance(item, list | tuple):
            for i, one in enumerate(item):
                walk(one, (place, i))
        elif isinstance(item, Spelled):
            numbers[_pointer(place)] = item.text
        elif (isinstance(item, float) and item.is_integer()) or (isinstance(item, int) and abs(item) > EXACT):
            numbers[_pointer(place)] = repr(item)

    walk(value, None)
    return {"order": order, "numbers": numbers}


def restored(value: Any, form: Mapping[str, Any]) -> Any:
    """The value as it came.

    Args:
        value: what was read from its canonical form.
        form: what `lost` said of it.

    Raises:
        ValueError: the two do not belong together.
    """
    orders = {number: places for number, *places in form["order"]}
    objects = 0

    def walk(item: Any, path: str) -> Any:
        nonlocal objects
        if isinstance(item, dict):
            places = orders.get(objects)
            objects += 1
            done = {name: walk(one, f"{path}/{_escaped(name)}") for name, one in item.items()}
            names = list(done)
            if places is None:
                return done
            if sorted(places) != list(range(len(names))):
                raise ValueError("the order of members is that of another value")
            return {names[i]: done[names[i]] for i in places}
        if isinstance(item, list):
            return [walk(one, f"{path}/{i}") for i, one in enumerate(item)]
        return json.loads(form["numbers"][path], parse_float=number) if path in form["numbers"] else item

    return walk(value, "")


def _pointer(place: _Place | None) -> str:
    parts: list[str] = []
    while place is not None:
        place, step = place
        parts.append(f"/{_escaped(str(step))}")
    return "".join(reversed(parts))


def _sorted(names: Iterable[str]) -> list[str]:
    """Names in the order of RFC 8785: that of their UTF-16, which of ASCII is that of the texts."""
    if all(map(str.isascii, names)):
        return sorted(names)
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
