"""What canonical JSON loses of a value, so that it can be sent again exactly as it came.

The order of members decides in which order a schema's properties are written, and how a template shows a tool: it moves
bits. So does the difference between 1 and 1.0 in a schema. Neither is part of the digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from samebits.ledger.canonical import EXACT


def lost(value: Any) -> dict[str, Any]:
    """What `restored` needs beside the canonical form.

    Returns:
        ``order``: of each object whose members are not sorted, its number (objects counted from 0 in the order of the
        canonical text), and for each member as it came its place among the sorted ones. ``numbers``: JSON pointer to
        the digits of each number that canonical JSON writes in another way.
    """
    order: list[list[int]] = []
    objects = 0

    def walk(item: Any) -> None:
        nonlocal objects
        if isinstance(item, dict):
            names = sorted(item, key=_utf16)
            if names != list(item):
                place = {name: i for i, name in enumerate(names)}
                order.append([objects, *(place[name] for name in item)])
            objects += 1
            for name in names:
                walk(item[name])
        elif isinstance(item, list | tuple):
            for one in item:
                walk(one)

    walk(value)
    return {"order": order, "numbers": dict(_numbers(value, ""))}


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
        return json.loads(form["numbers"][path]) if path in form["numbers"] else item

    return walk(value, "")


def _numbers(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _numbers(item, f"{path}/{_escaped(name)}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _numbers(item, f"{path}/{i}")
    elif (isinstance(value, float) and value.is_integer()) or (isinstance(value, int) and abs(value) > EXACT):
        yield path, repr(value)


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
