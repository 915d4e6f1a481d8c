"""Whether an answer is complete, and whether its text is valid."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from samebits.errors import InputError, OutputInvalid
from samebits.gateway.errors import MalformedError
from samebits.gateway.ids import MOST_UPSTREAM_ID
from samebits.gateway.json_body import MOST_LEVELS, is_deeper
from samebits.gateway.policy import Policy
from samebits.ledger.canonical import canonical, digest
from samebits.ledger.entry import DIGEST, PUBLIC_ID
from samebits.ledger.routes import CHAT, COMPLETIONS, RESPONSES
from samebits.structured import JsonObject, JsonSchema, Regex, StructuredSpec, validate

Judge = Callable[[str], str | None]
# Members of the block ``samebits`` of an answer that are digests.
BLOCK_DIGESTS: Final = (
    "form_sha256",
    "rendered_prompt_sha256",
    "prompt_tokens_sha256",
    "output_tokens_sha256",
    "logprobs_sha256",
)


@dataclass(frozen=True)
class Check:
    """How a text is judged: by a specification, or by a function.

    Attributes:
        name: for the key of the cache and for people.
        binding: asked for by a policy; otherwise only by the request, and then an answer that is not valid is handed
            out as it came, and said to be so.
    """

    name: str
    binding: bool
    spec: StructuredSpec | None = None
    judge: Judge | None = None

    async def problem(self, text: str) -> str | None:
        """What is wrong with a text; None where nothing is."""
        if self.judge is not None:
            return await asyncio.to_thread(_judged, self.judge, text)
        assert self.spec is not None
        try:
            validate(text, self.spec)
        except OutputInvalid as error:
            return str(error)
        return None


def _judged(judge: Judge, text: str) -> str | None:
    try:
        said = judge(text)
    except ValueError as error:
        said = str(error) or type(error).__name__
    return None if said is None else str(said)


def load_judge(name: str, field: str) -> Judge:
    """The function of an entry point ``module:function``.

    Raises:
        InputError: there is none.
    """
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"cannot be loaded: {error}", field=field, remedy="Give module:function.") from error
    if not callable(found):
        raise InputError("is no function", field=field, remedy="Give module:function.")
    judge: Judge = found
    return judge


def policy_check(policy: Policy, field: str) -> Check | None:
    """What a policy asks of every text; ``field`` is its place in the configuration.

    Raises:
        InputError: a schema, pattern or function that is none.
    """
    try:
        if policy.schema is not None:
            return Check(f"schema {_digest(policy.schema)}", True, _tried(JsonSchema.of(policy.schema, strict=False)))
        if policy.regex is not None:
            return Check(f"regex {policy.regex}", True, _tried(Regex(policy.regex)))
    except InputError as error:
        name = "regex" if policy.regex is not None else "schema"
        raise InputError(error.message, field=f"{field}.{name}", remedy=error.remedy) from error
    if policy.check is not None:
        return Check(f"check {policy.check}", True, judge=load_judge(policy.check, f"{field}.check"))
    return None


def request_check(path: str, body: Mapping[str, Any]) -> Check | None:
    """What a request asks of its text, in OpenAI's ``response_format``; None for anything else.

    Raises:
        InputError: a schema by which nothing can be judged here.
    """
    wanted = body.get("response_format")
    if path not in (CHAT, COMPLETIONS) or not isinstance(wanted, dict):
        return None
    if wanted.get("type") == "json_object":
        return Check("json_object", False, JsonObject())
    named = wanted.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    if wanted.get("type") != "json_schema" or not isinstance(schema, dict):
        return None
    try:
        return Check("request's schema", False, _tried(JsonSchema.of(schema, strict=False)))
    except InputError as error:
        raise InputError(error.message, field="response_format.json_schema.schema", remedy=error.remedy) from error


def _tried(spec: StructuredSpec) -> StructuredSpec:
    """A specification by which texts can be judged.

    Raises:
        InputError: it is none.
    """
    with contextlib.suppress(OutputInvalid):
        validate("", spec)
    return spec


def _digest(schema: Mapping[str, Any]) -> str:
    return digest(canonical([[name, value] for name, value in schema.items()]))


def check_shape(path: str, whole: object) -> dict[str, Any]:
    """An answer that has what its route promises.

    Raises:
        MalformedError: it has not, such as one without choices.
    """
    if not isinstance(whole, dict):
        raise MalformedError("the upstream's answer is not an object")
    if path in (CHAT, COMPLETIONS):
        choices = whole.get("choices")
        part, kind = ("message", dict) if path == CHAT else ("text", str)
        if not isinstance(choices, list) or not choices:
            raise MalformedError("the upstream's answer has no choices")
        if not all(isinstance(c, dict) and isinstance(c.get(part), kind) for c in choices):
            raise MalformedError(f"a choice of the upstream's answer has no {part}")
        if path == CHAT and not all(_are_calls(c["message"].get("tool_calls")) for c in choices):
            raise MalformedError("the upstream's answer has tool_calls that are none")
    elif not isinstance(whole.get("output"), list):
        raise MalformedError("the upstream's answer has no output")
    if path == RESPONSES:
        check_response_id(whole)
    if not _is_block(whole.get("samebits")):
        raise MalformedError("the upstream's answer has a block samebits that is none")
    if is_deeper(whole, MOST_LEVELS):
        raise MalformedError(f"the upstream's answer is nested deeper than {MOST_LEVELS} levels")
    return whole


def check_response_id(response: Mapping[str, Any]) -> None:
    """Refuses an id of /v1/responses that cannot stand in that of a record; none is none.

    Raises:
        MalformedError: it is no such id.
    """
    value = response.get("id", "none")
    if not isinstance(value, str) or len(value) > MOST_UPSTREAM_ID or not PUBLIC_ID.fullmatch(value):
        raise MalformedError("the upstream's answer has an id that is none")


def _is_block(block: object) -> bool:
    """Whether it has what is read of the block of another samebits, in the form that the ledger takes."""
    if not isinstance(block, dict):
        return block is None
    digests = [block.get(name) for name in BLOCK_DIGESTS]
    warnings, seed = block.get("warnings", []), block.get("seed")
    if not (seed is None or (type(seed) is int and -(2**63) <= seed < 2**63)):
        return False
    return all(d is None or (isinstance(d, str) and DIGEST.fullmatch(d)) for d in digests) and (
        isinstance(warnings, list) and all(isinstance(warning, str) for warning in warnings)
    )


def _are_calls(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(call, dict) for call in value))


def texts_of(path: str, whole: Mapping[str, Any]) -> list[str]:
    """The texts of an answer that are to be judged; those of choices that call tools are not."""
    if path == COMPLETIONS:
        return [str(choice["text"]) for choice in whole["choices"]]
    if path != CHAT:
        parts = [part for item in whole["output"] if _is_message(item) for part in item["content"]]
        return ["".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))] if parts else []
    return [_content(c["message"]) for c in whole["choices"] if not c["message"].get("tool_calls")]


def _is_message(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") == "message" and isinstance(item.get("content"), list)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def cut_short(path: str, whole: Mapping[str, Any]) -> str | None:
    """Why an answer is not complete, such as ``length``; None where it is."""
    if path in (CHAT, COMPLETIONS):
        reasons = [choice.get("finish_reason") for choice in whole["choices"]]
        bad = [str(r) for r in reasons if r not in ("stop", "tool_calls", "function_call", "eos", "stop_sequence")]
        return next(iter(bad), None)
    status = whole.get("status")
    return None if status in (None, "completed") else str(status)
