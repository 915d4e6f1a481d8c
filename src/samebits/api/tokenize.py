"""POST /tokenize and /detokenize: what the model sees of a text, and back."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from samebits.api.conversation import conversation
from samebits.api.document import answers
from samebits.api.encode import decode_ids, encode_conversation, encode_text
from samebits.api.errors import json_response
from samebits.api.promise import ids_digest
from samebits.api.schema_answers import Detokenized, Tokenized
from samebits.api.schema_tokenize import DetokenizeRequest, TokenizeRequest
from samebits.api.service import service_of
from samebits.api.strict_route import StrictRoute
from samebits.api.tool_answers import read_tools
from samebits.errors import InputError

router = APIRouter(route_class=StrictRoute)


@router.post("/tokenize", responses=answers(Tokenized))
async def tokenize(request: Request, body: TokenizeRequest) -> Response:
    """Token ids of a text, or of a conversation as the chat template renders it."""
    service = service_of(request)
    llm = service.model(body.model).llm
    if (body.prompt is None) == (body.messages is None):
        raise InputError("or messages is needed, and not both", field="prompt", remedy="Give one of the two.")
    if body.messages is not None:
        if body.add_special_tokens is not None:
            raise InputError(
                "is for a prompt: a chat template holds its own", field="add_special_tokens", remedy="Leave it out."
            )
        toolbox = await read_tools(body.tools, None, None, llm.tokenizer.tool_dialect) if body.tools else None
        tools = toolbox.sent if toolbox else ()
        ids = (await encode_conversation(llm, conversation(body.messages), service.config.date, tools=tools)).ids
    else:
        if body.tools is not None:
            raise InputError("is for messages", field="tools", remedy="Leave it out.")
        ids = await encode_text(llm, body.prompt or "", add_special=body.add_special_tokens is not False)
    result = {
        "count": len(ids),
        "max_model_len": llm.config.context_length,
        "tokens": ids,
        "tokens_sha256": ids_digest([ids]),
        "warnings": list(llm.tokenizer.prompt_warnings(ids)),
    }
    if body.return_token_strs:
        result["token_strs"] = [llm.tokenizer.token_bytes(i).decode("utf-8", "replace") for i in ids]
    return json_response(result)


@router.post("/detokenize", responses=answers(Detokenized))
async def detokenize(request: Request, body: DetokenizeRequest) -> Response:
    """The text of token ids, without special tokens."""
    llm = service_of(request).model(body.model).llm
    size = llm.config.vocab_size
    token = max(body.tokens, default=0)
    if token >= size:
        raise InputError(
            f"token id {token} is outside the vocabulary", field="tokens", remedy=f"Ids go from 0 to {size - 1}."
        )
    return json_response({"prompt": await decode_ids(llm, body.tokens)})
