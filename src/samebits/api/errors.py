"""From exceptions to answers: one table, and OpenAI's shape with all four keys for every error."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from samebits.api.validation import first_problem
from samebits.errors import (
    CapacityError,
    ConstraintError,
    ContextLengthError,
    EngineFailedError,
    InputError,
    LedgerError,
    NumericsError,
    OutputInvalid,
    OverloadedError,
    SamebitsError,
)
from samebits.gateway.errors import (
    DriftError,
    MalformedError,
    NotValidError,
    RefusedError,
    RestingError,
    UnreachableError,
    UpstreamTimeoutError,
)
from samebits.gateway.json_body import write_json

log = logging.getLogger(__name__)


class UnknownModelError(InputError):
    """No model of that name is served."""


class UnknownReceiptError(InputError):
    """The caller has no answer of that id."""


class ReceiptsOffError(InputError):
    """No receipts are signed here."""


class UnsupportedError(InputError):
    """A field of OpenAI's API that this server does not have."""


class MissingFieldError(InputError):
    """A field that this request needs, though not every request does."""


class UnauthorizedError(SamebitsError):
    """No API key, or a wrong one."""


class BodyTooLargeError(SamebitsError):
    """The body is longer than the server takes."""


class DrainingError(SamebitsError):
    """The server is about to end and takes nothing new, or ends before an answer is complete."""


def cut_off() -> DrainingError:
    """The error of a request that is under way when the drain is over."""
    return DrainingError("the server ended before the answer was complete")


class DeadlineError(SamebitsError):
    """The request took longer than the server allows."""


class ClientGoneError(SamebitsError):
    """The client closed the connection; there is nobody to answer."""


@dataclass(frozen=True)
class Kind:
    """How a class of exceptions is answered."""

    status: int
    type: str
    code: str


INVALID: Final = "invalid_request_error"
SERVER: Final = "server_error"

# The first class that matches decides, so a class stands before its bases. docs/guide/server.md has the same rows.
TABLE: Final[tuple[tuple[type[Exception], Kind], ...]] = (
    (UnknownModelError, Kind(404, INVALID, "model_not_found")),
    (UnknownReceiptError, Kind(404, INVALID, "receipt_not_found")),
    (ReceiptsOffError, Kind(404, INVALID, "receipts_off")),
    (ContextLengthError, Kind(400, INVALID, "context_length_exceeded")),
    (UnsupportedError, Kind(400, INVALID, "unsupported_parameter")),
    (MissingFieldError, Kind(400, INVALID, "missing_required_parameter")),
    (InputError, Kind(400, INVALID, "invalid_value")),
    (CapacityError, Kind(400, INVALID, "capacity_exceeded")),
    (UnauthorizedError, Kind(401, INVALID, "invalid_api_key")),
    (DeadlineError, Kind(408, "timeout_error", "request_timeout")),
    (BodyTooLargeError, Kind(413, INVALID, "body_too_large")),
    (OverloadedError, Kind(429, "rate_limit_error", "queue_full")),
    (ConstraintError, Kind(400, INVALID, "constraint_failed")),
    (OutputInvalid, Kind(400, INVALID, "output_invalid")),
    (ClientGoneError, Kind(499, INVALID, "client_gone")),
    (DriftError, Kind(409, "conflict_error", "model_moved")),
    (NotValidError, Kind(422, INVALID, "answer_not_valid")),
    (UnreachableError, Kind(502, SERVER, "upstream_unreachable")),
    (MalformedError, Kind(502, SERVER, "upstream_malformed")),
    (RestingError, Kind(503, SERVER, "upstream_resting")),
    (LedgerError, Kind(503, SERVER, "ledger_unavailable")),
    (UpstreamTimeoutError, Kind(504, SERVER, "upstream_timeout")),
    (NumericsError, Kind(500, SERVER, "logits_not_finite")),
    (EngineFailedError, Kind(500, SERVER, "engine_failed")),
    (DrainingError, Kind(503, SERVER, "shutting_down")),
    (Exception, Kind(500, SERVER, "internal_error")),
)
HTTP_CODES: Final = {404: "not_found", 405: "method_not_allowed", 415: "unsupported_media_type"}
RETRY_AFTER_S: Final = "1"


@dataclass(frozen=True)
class Failure:
    """An error as it is answered."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]


def failure(error: Exception) -> Failure:
    """The answer to an exception. What was not raised on purpose is not shown but logged."""
    if isinstance(error, RefusedError):  # another server's own answer
        return Failure(error.status, error.body, error.headers)
    if not isinstance(error, SamebitsError):
        log.error("a request failed", exc_info=error)
    kind = next(kind for raised, kind in TABLE if isinstance(error, raised))
    message = str(error) if isinstance(error, SamebitsError) else "The server has a fault; its log has the details."
    param = error.field if isinstance(error, InputError) else None
    headers = {"retry-after": RETRY_AFTER_S} if kind.status in (429, 503) else {}
    if kind.status == 401:
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, RestingError):
        headers["retry-after"] = f"{error.seconds:.0f}"
    body = error_object(message, kind.type, param, kind.code)
    if isinstance(error, NotValidError):
        body["samebits"] = {"attempts": list(error.attempts)}
    return Failure(kind.status, body, headers)


def error_object(message: str, kind: str, param: str | None, code: str) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_response(error: Exception) -> Response:
    """The HTTP response to an exception."""
    answer = failure(error)
    return json_response(answer.body, answer.status, answer.headers)


def json_response(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response. Floats are written with the digits that give back the same float."""
    return Response(write_json(body), status, headers, "application/json")


async def _on_exception(_: Request, error: Exception) -> Response:
    return error_response(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = HTTP_CODES.get(error.status_code, "http_error")
    message = f"{request.method} {request.scope['path']}: {error.detail}. See /openapi.json for what there is."
    return json_response(error_object(message, INVALID, None, code), error.status_code, error.headers)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problem = first_problem(error.errors())
    return json_response(error_object(problem.message, INVALID, problem.param, problem.code), 400)


def install(app: FastAPI) -> None:
    """Makes the app answer every error in OpenAI's shape."""
    app.add_exception_handler(SamebitsError, _on_exception)
    app.add_exception_handler(Exception, _on_exception)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_invalid)
