"""A whole answer of /v1/responses as the events that it would have come in. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

Event = dict[str, Any]
_AT_THE_END: Final = ("usage", "incomplete_details", "completed_at")  # not known at the beginning
_EMPTY: Final[Mapping[str, dict[str, Any]]] = {"message": {"content": []}, "function_call": {"arguments": ""}}
# What grows in a part of a message, by its type: a text, of which the events are named after the type.
_TEXTS: Final = {"output_text": "text", "refusal": "refusal"}


def events_of(whole: Mapping[str, Any]) -> Iterator[Event]:
    """The events of an answer, numbered: each text in one piece, and at the end the answer as it is without ``stream``.

    Items of other kinds than messages and calls of functions come complete, between an event that they begin and one
    that they have ended.
    """
    numbers = count()
    for event in _events(whole):
        yield {"type": event.pop("type"), "sequence_number": next(numbers), **event}


def _events(whole: Mapping[str, Any]) -> Iterator[Event]:
    begun = {name: value for name, value in whole.items() if name != "samebits"}
    begun |= {"status": "in_progress", "output": []} | {name: None for name in _AT_THE_END if name in whole}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(whole["output"]):
        kind = _kind(item)
        yield {"type": "response.output_item.added", "output_index": index, "item": _begun(kind, item)}
        if kind == "message" and isinstance(item.get("content"), list):
            yield from _message(index, item)
        elif kind == "function_call":
            where = {"item_id": item.get("id"), "output_index": index}
            said, name = {"arguments": item.get("arguments")}, {"name": item.get("name")}
            yield {"type": "response.function_call_arguments.delta", **where, "delta": item.get("arguments")}
            yield {"type": "response.function_call_arguments.done", **where, **name, **said}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole.get('status') or 'completed'}", "response": dict(whole)}


def _kind(value: Any) -> str:
    return str(value.get("type")) if isinstance(value, dict) else ""


def _begun(kind: str, item: Any) -> Any:
    """An item before anything of it has come."""
    empty = _EMPTY.get(kind)
    return item if empty is None else {**item, "status": "in_progress", **empty}


def _message(index: int, item: Mapping[str, Any]) -> Iterator[Event]:
    for place, part in enumerate(item["content"]):
        where = {"item_id": item.get("id"), "output_index": index, "content_index": place}
        kind = _kind(part)
        grows = _TEXTS.get(kind)
        if grows is None:
            yield {"type": "response.content_part.added", **where, "part": part}
        else:
            logprobs = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
            empty = {grows: "", **({"logprobs": []} if logprobs else {})}
            yield {"type": "response.content_part.added", **where, "part": {**part, **empty}}
            yield {"type": f"response.{kind}.delta", **where, "delta": part.get(grows), **logprobs}
            yield {"type": f"response.{kind}.done", **where, grows: part.get(grows), **logprobs}
        yield {"type": "response.content_part.done", **where, "part": part}
