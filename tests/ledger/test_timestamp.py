"""Timestamps of an authority of our own, made by openssl."""

from __future__ import annotations

import datetime
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.ledger.conftest import make_entry

from samebits.errors import InputError, MeasurementError
from samebits.ledger import Ledger, timestamp
from samebits.ledger.anchors import Anchors, read_anchors
from samebits.ledger.fsck import check
from samebits.ledger.timestamp import stamp
from waiting import PATIENCE_S

if shutil.which("openssl") is None:
    pytest.skip("openssl, which makes the timestamps, is not installed", allow_module_level=True)

CONFIG = """
[tsa]
default_tsa = it
[it]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
crypto_device = builtin
ess_cert_id_alg = sha256
"""


def certificate(name: str, key: rsa.RSAPrivateKey, issuer: str, signed_by: rsa.RSAPrivateKey) -> x509.Certificate:
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    is_root = name == issuer
    built = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
    )
    if not is_root:
        built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True)
    return built.sign(signed_by, hashes.SHA256())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of an authority, and a folder with its root certificate."""
    folder = tmp_path_factory.mktemp("tsa")
    root_key, key = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    (folder / "root.pem").write_bytes(certificate("root", root_key, "root", root_key).public_bytes(Encoding.PEM))
    (folder / "tsa.pem").write_bytes(certificate("tsa", key, "root", root_key).public_bytes(Encoding.PEM))
    (folder / "tsa.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    other = certificate("root", key, "root", key)
    (folder / "other.pem").write_bytes(other.public_bytes(Encoding.PEM))
    (folder / "serial").write_text("01\n")
    (folder / "tsa.cnf").write_text(CONFIG.format(folder=folder))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            (folder / "query").write_bytes(self.rfile.read(int(self.headers["content-length"])))
            command = ["openssl", "ts", "-reply", "-config", "tsa.cnf", "-queryfile", "query", "-out", "reply"]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            body = (folder / "reply").read_bytes() if self.path == "/tsa" else b"no timestamp"
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    thread.join()
    server.server_close()


def test_heads_get_a_timestamp_that_is_checked(
    sqlite_url: str, tmp_path: Path, authority: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timestamp, "TIMEOUT_S", PATIENCE_S)
    address, folder = authority
    path = tmp_path / "anchors"
    with Ledger.open(sqlite_url) as ledger:
        ledger.append([make_entry(1), make_entry(2, tenant="other")])
        for _ in range(2):
            anchors = Anchors(path)
            anchors.note_heads(ledger.heads())
            anchors.write(lambda data: stamp(f"{address}/tsa", data))
            anchors.close()
        noted = read_anchors(path)
        assert (len(noted.anchors), len(noted.stamps), noted.damaged) == (4, 2, {})
        good = check(ledger, path, folder / "root.pem")
        assert good.count == 0, good.problems
        assert ["existed at" in note for note in good.notes] == [True, True]
        # Negative controls: another authority, and heads that were changed under their timestamp.
        bad = check(ledger, path, folder / "other.pem")
        assert [problem.fault for problem in bad.problems] == ["anchor", "anchor"]
        path.write_bytes(path.read_bytes().replace(b'"seq":1', b'"seq":2', 1))
        bad = check(ledger, path, folder / "root.pem")
        assert "the timestamp of line 3 does not hold" in bad.problems[0].said


def test_what_is_no_authority_is_said(authority: tuple[str, Path]) -> None:
    address, folder = authority
    for url in (f"{address}/other", "http://127.0.0.1:9/"):
        with pytest.raises(MeasurementError, match="gives no timestamp"):
            stamp(url, b"x")
    with pytest.raises(InputError, match="tsa"):
        stamp("file:///etc/passwd", b"x")
    assert folder.is_dir()
