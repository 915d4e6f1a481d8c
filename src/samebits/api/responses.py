"""POST /v1/responses: OpenAI's newer route, as far as it needs no memory between requests."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from samebits.api.document import answers
from samebits.api.encode import encode_conversation
from samebits.api.errors import json_response
from samebits.api.job import finished
from samebits.api.output_format import compiled, schema_spec
from samebits.api.prepare import Wanted, given, prepare_job
from samebits.api.response_answer import ResponseAnswer
from samebits.api.response_input import messages_of
from samebits.api.schema_response_answers import ResponseObject
from samebits.api.schema_responses import ResponseRequest, SchemaFormat
from samebits.api.schema_tools import NamedChoice, Tool
from samebits.api.served import Served
from samebits.api.service import service_of
from samebits.api.stream import NAMED, EventStream
from samebits.api.strict_route import StrictRoute
from samebits.api.tool_answers import demanded, read_tools, shown_ids
from samebits.api.tools import Toolbox
from samebits.errors import InputError
from samebits.structured import JsonObject, StructuredSpec

router = APIRouter(route_class=StrictRoute)


@router.post("/v1/responses", responses=answers(ResponseObject, streams=True))
async def create_response(request: Request, body: ResponseRequest) -> Response:
    """Answers an input."""
    service = service_of(request)
    served = service.model(body.model)
    toolbox, spec = await _toolbox(served, body), _spec(body)
    _check(body, toolbox, spec)
    prompt = await encode_conversation(
        served.llm,
        messages_of(body),
        service.config.date,
        field="input",
        tools=toolbox.sent if toolbox else (),
        beginning=toolbox.beginning if toolbox else "",
    )
    if spec is None:
        grammar = await demanded(served, toolbox)
    else:
        grammar = await compiled(served, spec, "text.format")
    job = prepare_job(
        service,
        served,
        [prompt.ids],
        _wanted(body),
        rendered_sha256=prompt.sha256,
        grammar=grammar,
        shown=shown_ids(served, toolbox),
    )
    answer = ResponseAnswer(job, body, toolbox, spec)
    if body.stream:
        return EventStream(job, answer, NAMED)
    return json_response(answer.whole(await finished(job, request.receive)))


def _wanted(body: ResponseRequest) -> Wanted:
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed")
    values = {name: getattr(body, name) for name in names}
    explicit = given(values, max_tokens=body.max_output_tokens, logprobs=body.top_logprobs)
    return Wanted(explicit, None, body.determinism)


async def _toolbox(served: Served, body: ResponseRequest) -> Toolbox | None:
    """As in a chat: a tool's keys but ``type`` stand in an object ``function``, in their order."""
    tools = None
    if body.tools is not None:
        flat = [{name: value for name, value in tool.sent.items() if name != "type"} for tool in body.tools]
        tools = [Tool.model_validate({"type": "function", "function": function}) for function in flat]
    choice: str | NamedChoice | None
    if body.tool_choice is None or isinstance(body.tool_choice, str):
        choice = body.tool_choice
    else:
        choice = NamedChoice.model_validate({"type": "function", "function": {"name": body.tool_choice.name}})
    dialect = served.llm.tokenizer.tool_dialect if tools else None
    return await read_tools(tools, choice, body.parallel_tool_calls, dialect, inside="")


def _spec(body: ResponseRequest) -> StructuredSpec | None:
    wanted = None if body.text is None else body.text.format
    if isinstance(wanted, SchemaFormat):
        return schema_spec(wanted.json_schema, wanted.strict, "text.format.schema")
    return JsonObject() if wanted is not None and wanted.type == "json_object" else None


def _check(body: ResponseRequest, toolbox: Toolbox | None, spec: StructuredSpec | None) -> None:
    if body.stream_options is not None and not body.stream:
        raise InputError("needs stream", field="stream_options", remedy="Set stream to true, or leave it out.")
    if body.top_logprobs is not None and not body.include:
        raise InputError(
            "needs include", field="top_logprobs", remedy='Include "message.output_text.logprobs", or leave it out.'
        )
    if toolbox is None:
        return
    remedy = 'Leave one of them out, or set tool_choice to "none".'
    if spec is not None:
        raise InputError("does not go with tools: it would let no call be made", field="text.format", remedy=remedy)
    if body.include:
        raise InputError("does not go with tools: calls have no log-probabilities", field="include", remedy=remedy)
