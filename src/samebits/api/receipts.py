"""GET /v1/receipts/{id}: the signed receipt of an answer."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from samebits.api.auth import tenant_of
from samebits.api.document import answers
from samebits.api.errors import ReceiptsOffError, UnknownReceiptError
from samebits.api.schema_answers import ReceiptEnvelope
from samebits.api.service import service_of
from samebits.errors import LedgerError
from samebits.gateway.record import Recorder
from samebits.ledger import Record
from samebits.ledger.chain import intact
from samebits.ledger.entry import PUBLIC_ID

router = APIRouter()


@router.get("/v1/receipts/{id}", responses=answers(ReceiptEnvelope))
async def get_receipt(request: Request, id: str) -> Response:
    """The receipt of an answer of the caller's, in the bytes that ``samebits verify`` checks."""
    gateway = service_of(request).gateway
    assert gateway is not None, "the application is put together"
    tenant = tenant_of(request)
    return Response(await asyncio.to_thread(_receipt, gateway.recorder, tenant, id), media_type="application/json")


def _receipt(recorder: Recorder, tenant: str, id: str) -> bytes:
    """Signs what the ledger holds of an answer.

    Raises:
        ReceiptsOffError: nothing is signed here.
        UnknownReceiptError: the tenant has no such answer, or it was pruned.
        LedgerError: the ledger cannot be read, or the record was changed since it was stored.
    """
    if recorder.ledger is None or recorder.signer is None or not recorder.receipts:
        missing = "url" if recorder.ledger is None else "receipt_key" if recorder.receipts else "receipts"
        raise ReceiptsOffError(
            "are off on this server", field="receipts", remedy=f"Set ledger.{missing} in its configuration."
        )
    from samebits.ledger.receipt import receipt_of

    record = _answer(recorder.ledger.ledger.find(id) if PUBLIC_ID.fullmatch(id) else [], tenant, id)
    return receipt_of(record, recorder.signer)


def _answer(records: list[Record], tenant: str, id: str) -> Record:
    own = [record for record in records if record.tenant == tenant and record.kind == "answer"]
    if len(own) != 1 or own[0].body is None:
        said = f"{id!r:.100} is the id of {len(own) or 'no'} answers" if len(own) != 1 else f"{id} was pruned"
        raise UnknownReceiptError(said, field="id", remedy="Give the receipt_id of an answer to this API key.")
    if not intact(own[0]):
        raise LedgerError(f"the record of {id} was changed since it was stored")
    return own[0]
