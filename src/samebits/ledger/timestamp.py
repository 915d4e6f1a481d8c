"""Timestamps of anchors by an authority (RFC 3161): somebody without a part in it says that heads existed at a time.

Optional: needs the extra ``timestamp``, and is imported by nothing else.
"""

from __future__ import annotations

import datetime
import hashlib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from samebits.errors import InputError, MeasurementError

TIMEOUT_S: Final = 30.0
MOST_BYTES: Final = 1 << 20
_REMEDY: Final = "Give http(s)://… of an authority that answers RFC 3161."


def stamp(url: str, data: bytes) -> bytes:
    """Asks an authority for a timestamp of the SHA-256 of some bytes; they themselves are not sent.

    Raises:
        InputError: the URL is none, or the extra is not installed.
        MeasurementError: the authority cannot be reached, or refuses.
    """
    rfc3161 = _library()
    if not url.startswith(("http://", "https://")):
        raise InputError("is no address of an authority", field="tsa", remedy=_REMEDY)
    query = rfc3161.TimestampRequestBuilder().data(data).hash_algorithm(rfc3161.HashAlgorithm.SHA256).build()
    request = urllib.request.Request(
        url, data=query.as_bytes(), headers={"content-type": "application/timestamp-query"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            response: bytes = answer.read(MOST_BYTES)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise MeasurementError(f"the authority gives no timestamp: {error}") from error
    try:
        imprint = rfc3161.decode_timestamp_response(response).tst_info.message_imprint.message
    except ValueError as error:
        raise MeasurementError(f"the authority gives no timestamp: {error}") from error
    if imprint != hashlib.sha256(data).digest():
        raise MeasurementError("the authority gives a timestamp of something else")
    return response


def verified(response: bytes, data: bytes, root: x509.Certificate) -> datetime.datetime:
    """The time of a timestamp, whose signature leads to a root certificate.

    Raises:
        ValueError: it is of other bytes, or not signed by an authority under this root.
        InputError: the extra is not installed.
    """
    rfc3161 = _library()
    try:
        decoded = rfc3161.decode_timestamp_response(response)
        rfc3161.VerifierBuilder(roots=[root]).build().verify(decoded, hashlib.sha256(data).digest())
    except (rfc3161.VerificationError, ValueError) as error:
        raise ValueError(str(error)) from error
    moment: datetime.datetime = decoded.tst_info.gen_time
    return moment


def read_root(path: Path) -> x509.Certificate:
    """A certificate in PEM.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no certificate: {error}", field="tsa_root", remedy="Name a PEM file.") from error


def _library() -> Any:
    try:
        import rfc3161_client
    except ImportError:
        raise InputError(
            "needs a package that is not installed", field="tsa", remedy="pip install 'samebits[timestamp]'"
        ) from None
    return rfc3161_client
