"""How the answers of peers differ from ours in fields that OpenAI defines, each with the reason.

A difference that is not here fails the comparison, and so does a row that is not met.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """One that is known.

    Attributes:
        where: the kind of answer, for streams with the place; for a status the name of the case.
        path: of the field; ``status`` for the HTTP status.
        ours, theirs: JSON types, or statuses.
        why: the reason.
    """

    where: str
    path: str
    ours: str
    theirs: str
    why: str


_PLACES = ("start", "piece", "end")  # of a chunk
# Reasons that hold for several fields.
_NULLS = "OpenAI shows null where nothing was asked for; it leaves the field out"
_OLDER = "it gives the older route the log-probabilities of chat; ours are those that OpenAI defines for it"
_USAGE = "OpenAI sends the usage of a completion in a chunk of its own; it puts it into the last one, asked for or not"
_LENIENT = "it answers what OpenAI refuses"
_FREE = "a call that is required is not enforced where the template has no tools; ours is held to one by a grammar"
_START = "OpenAI begins with an empty text"

LLAMA_CPP = (
    Difference("chat", "choices[].logprobs", "null", "absent", _NULLS),
    Difference("chat", "choices[].logprobs.refusal", "null", "absent", _NULLS),
    Difference("chat", "choices[].message.refusal", "null", "absent", _NULLS),
    Difference(
        "chat",
        "choices[].logprobs.content[].top_logprobs[]",
        "absent",
        "object",
        "it shows 20 where top_logprobs is not given; OpenAI's default is none",
    ),
    *(Difference(f"chat chunk: {p}", "choices[].logprobs", "null", "absent", _NULLS) for p in _PLACES),
    *(
        Difference(f"chat chunk: {p}", "usage", "null", "absent", "OpenAI: null in all but the last, where asked for")
        for p in _PLACES
    ),
    Difference("chat chunk: piece", "choices[].logprobs.refusal", "null", "absent", _NULLS),
    Difference("chat chunk: start", "choices[].delta.refusal", "null", "absent", _NULLS),
    Difference("chat chunk: start", "choices[].delta.content", "string", "null", _START),
    *(
        Difference(kind, f"choices[].logprobs.{field}", "array", "absent", _OLDER)
        for kind in ("completion", "completion chunk: piece")
        for field in ("text_offset", "token_logprobs", "tokens", "top_logprobs")
    ),
    *(
        Difference(kind, f"choices[].{field}", ours, theirs, _FREE)
        for kind, field, ours, theirs in (
            ("chat", "message.content", "null", "string"),
            ("chat", "message.tool_calls", "array", "absent"),
            ("chat chunk: piece", "delta.content", "absent", "string"),
            ("chat chunk: piece", "delta.tool_calls", "array", "absent"),
        )
    ),
    Difference("completion chunk: end", "choices[].logprobs", "object", "null", "its last token has a chunk before"),
    Difference("completion chunk: end", "usage", "absent", "object", _USAGE),
    Difference("completion chunk: end", "usage", "null", "object", _USAGE),
    Difference("completion chunk: piece", "usage", "null", "absent", _USAGE),
    Difference("completion chunk: usage", "", "met", "absent", _USAGE),
    Difference("error", "error.code", "string", "integer", "OpenAI's codes are words; it repeats the status"),
    Difference("error", "error.param", "string", "absent", "it names the field in the message alone"),
    Difference("error", "error.param", "null", "absent", _NULLS),
    Difference("unknown model", "status", "404", "200", "it has one model, and answers for any name"),
    Difference("empty messages", "status", "400", "200", _LENIENT),
    Difference("temperature out of range", "status", "400", "200", _LENIENT),
    Difference("unknown role", "status", "400", "200", "any role is left to the template"),
    Difference("another method", "status", "405", "404", "it has no such route for another method"),
)

# Version 0.32 on a CPU, with the tool parser hermes; compared by hand (--peer), since it takes gigabytes.
_CALLS = "a call comes in pieces; ours comes whole, since none is handed out before its arguments are judged"
_UNUSED = "null for what it does not offer; we leave out what nobody can ask us for"
_STREAM = "its chunks have no fingerprint, as nothing in them says by which build they were computed"
VLLM = (
    *(
        Difference("chat", field, "absent", "null", _UNUSED)
        for field in (
            "choices[].message.annotations",
            "choices[].message.audio",
            "choices[].message.function_call",
            "service_tier",
            "usage.completion_tokens_details",
        )
    ),
    Difference("completion", "usage.completion_tokens_details", "absent", "null", _UNUSED),
    Difference("chat", "choices[].logprobs.refusal", "null", "absent", _NULLS),
    Difference("chat", "choices[].message.content", "null", "string", "an empty text beside calls; OpenAI: null"),
    *(
        Difference(f"{kind}: {p}", "system_fingerprint", "string", "absent", _STREAM)
        for kind, places in (("chat chunk", _PLACES), ("completion chunk", ("piece", "end")))
        for p in places
    ),
    *(
        Difference(f"{kind}: {p}", "usage", "null", "absent", "OpenAI: null in all but the last, where asked for")
        for kind, places in (("chat chunk", _PLACES), ("completion chunk", ("piece", "end")))
        for p in places
    ),
    Difference("chat chunk: start", "choices[].delta.refusal", "null", "absent", _NULLS),
    Difference("chat chunk: start", "choices[].delta.content", "null", "string", "null where calls may follow"),
    Difference("chat chunk: piece", "choices[].logprobs.refusal", "null", "absent", _NULLS),
    Difference("chat chunk: piece", "choices[].delta.content", "absent", "null", "both mean that nothing was added"),
    *(
        Difference("chat chunk: piece", f"choices[].delta.tool_calls[].{field}", "string", "absent|string", _CALLS)
        for field in ("id", "type", "function.name", "function.arguments")
    ),
    Difference("chat chunk: end", "choices[].delta.content", "absent", "string", "its last token comes with the end"),
    Difference("chat chunk: end", "choices[].logprobs", "null", "object", "its last token comes with the end"),
    Difference("error", "error.code", "string", "integer", "OpenAI's codes are words; it repeats the status"),
    Difference("error", "error.param", "string", "null", "it names the field in the message alone"),
    Difference("error", "error", "object", "absent", "an unknown route is answered by its framework: {detail}"),
    Difference("unknown role", "status", "400", "200", "any role is left to the template"),
)

DIFFERENCES: Mapping[str, tuple[Difference, ...]] = {"llama.cpp": LLAMA_CPP, "vLLM": VLLM}
