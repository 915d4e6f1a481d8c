"""The key of an answer: a digest over everything that can change it, and over nothing else. Pure.

Fields that are not known stay in the key, in the order of their keys, so that a doubt costs a miss and never another
request's answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from samebits.ledger.canonical import EXACT, canonical, digest
from samebits.ledger.routes import CHAT, COMPLETIONS
from samebits.ledger.spelled import Spelled

# Without effect on the answer, on the two routes whose answers do not repeat them.
IGNORED: Final = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
_STREAMING: Final = frozenset({"stream", "stream_options"})  # how an answer comes
# Objects whose order of keys cannot matter, by their place; everywhere else it counts, since it is the order in which
# properties are generated.
_UNORDERED: Final = frozenset({(), ("messages", "*"), ("messages", "*", "content", "*"), ("logit_bias",)})


@dataclass(frozen=True)
class KeyParts:
    """What goes into a key.

    Attributes:
        tenant: answers are never shared between tenants.
        path: the route.
        model: the name under which it is served.
        identity: what computes it: the fingerprint, and where there is none the address and the model's name there.
        body: the effective fields of the body.
        check: digest of how the text is judged.
    """

    tenant: str
    path: str
    model: str
    identity: Mapping[str, Any]
    body: Mapping[str, Any]
    check: str | None

    @property
    def form(self) -> dict[str, Any]:
        """The JSON value of which the key is the digest."""
        return {
            "tenant": self.tenant,
            "path": self.path,
            "model": self.model,
            "identity": dict(self.identity),
            "check": self.check,
            "body": form_of(self.body),
        }

    @cached_property
    def digest(self) -> str:
        """The key.

        Raises:
            InputError: the body holds what JSON cannot express in one way, such as a lone surrogate.
        """
        return digest(canonical(self.form))


def effective_body(path: str, body: Mapping[str, Any], defaults: Mapping[str, Any], *, aliases: bool) -> dict[str, Any]:
    """The fields that count, with the defaults that are known in place of what is absent or null.

    Args:
        defaults: of the backend, where it tells them.
        aliases: ``max_completion_tokens`` and a single ``stop`` are but other spellings.
    """
    ignored = {"model"} | _STREAMING | (IGNORED if path in (CHAT, COMPLETIONS) else frozenset())
    fields = {name: value for name, value in body.items() if name not in ignored}
    if aliases:
        newer = fields.pop("max_completion_tokens", None)
        if fields.get("max_tokens") is None and newer is not None:
            fields["max_tokens"] = newer
        if isinstance(fields.get("stop"), str):
            fields["stop"] = [fields["stop"]]
        fields = {name: value for name, value in fields.items() if value is not None}
    return {**defaults, **fields}


def form_of(value: Any, place: tuple[str, ...] = ()) -> Any:
    """A JSON value in which everything that can matter is told apart, also after sorting of keys.

    Numbers that are equal are one: 1 and 1.0, 0.0 and −0.0.
    """
    if isinstance(value, dict):
        if place in _UNORDERED:
            return {"object": {name: form_of(item, (*place, name)) for name, item in value.items()}}
        return {"ordered": [[name, form_of(item, (*place, name))] for name, item in value.items()]}
    if isinstance(value, list):
        return [form_of(item, (*place, "*")) for item in value]
    if isinstance(value, Spelled):
        return {"number": value.text}
    if isinstance(value, float) and abs(value) > EXACT and value.is_integer():
        return {"integer": str(int(value))}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > EXACT:
        return {"integer": str(value)}
    return value


def is_deterministic(body: Mapping[str, Any]) -> bool:
    """Whether a body asks for greedy decoding or gives a seed: an answer without either is one of many."""
    temperature = body.get("temperature")
    greedy = isinstance(temperature, int | float) and not isinstance(temperature, bool) and temperature == 0
    return greedy or body.get("seed") is not None or body.get("use_beam_search") is True


def outside(body: Mapping[str, Any]) -> str | None:
    """Why an answer depends on more than its body, such as an image that is given by its address; None where not."""
    for name in ("previous_response_id", "conversation", "background", "store", "web_search_options"):
        if body.get(name):
            return name
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict) or tool.get("type") != "function":
            return "tools"
    return "content" if _refers(body) else None


def _refers(value: Any) -> bool:
    """Whether some part names data that is elsewhere: by URL, or by the id of a file."""
    if isinstance(value, dict):
        if isinstance(value.get("file_id"), str):
            return True
        for name in ("image_url", "file_url", "video_url", "audio_url"):
            given = value.get(name)
            url = given.get("url") if isinstance(given, dict) else given
            if isinstance(url, str) and not url.startswith("data:"):
                return True
        return any(_refers(item) for item in value.values())
    return isinstance(value, list) and any(_refers(item) for item in value)
