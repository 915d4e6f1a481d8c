"""Ed25519 keys that sign receipts: made, written, read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from samebits.errors import InputError
from samebits.ledger.canonical import digest

PRIVATE_NAME: Final = "receipt-key.pem"
PUBLIC_NAME: Final = "receipt-key.pub"
_MAKE: Final = "Make one with samebits keys init."


@dataclass(frozen=True)
class PublicKey:
    """A key that verifies.

    Attributes:
        id: ``sha256:…`` of the DER form (SubjectPublicKeyInfo).
    """

    key: Ed25519PublicKey
    id: str

    @classmethod
    def of(cls, key: Ed25519PublicKey) -> PublicKey:
        """Wraps a key."""
        der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return cls(key, digest(der))

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether the signature is this key's, of this data."""
        try:
            self.key.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    @property
    def pem(self) -> bytes:
        """The key as a PEM file."""
        return self.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True, repr=False)
class Signer:
    """A private key, and the public one that belongs to it."""

    key: Ed25519PrivateKey
    public: PublicKey

    @classmethod
    def of(cls, key: Ed25519PrivateKey) -> Signer:
        """Wraps a key."""
        return cls(key, PublicKey.of(key.public_key()))

    @classmethod
    def new(cls) -> Signer:
        """Draws a key."""
        return cls.of(Ed25519PrivateKey.generate())

    def sign(self, data: bytes) -> bytes:
        """The 64 bytes of a signature."""
        return self.key.sign(data)


def default_folder() -> Path:
    """Where keys are when no other place is named: of this user."""
    return Path.home() / ".config" / "samebits"


def write_new(folder: Path) -> Signer:
    """Draws a key and writes both files; the private one can be read by this user alone.

    Raises:
        InputError: there is a key already, or the folder cannot be written.
    """
    signer = Signer.new()
    private = signer.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made = list[Path]()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, data, mode in ((PRIVATE_NAME, private, 0o600), (PUBLIC_NAME, signer.public.pem, 0o644)):
            file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            made.append(folder / name)
            with open(file, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
    except OSError as error:
        for path in made:  # half a pair would be taken for a whole one
            path.unlink(missing_ok=True)
        raise _cannot_write(error, folder) from error
    return signer


def _cannot_write(error: OSError, folder: Path) -> InputError:
    if isinstance(error, FileExistsError):
        return InputError(
            f"{error.filename} exists: a key is never overwritten", field="out", remedy="Name another folder."
        )
    return InputError(f"{folder} cannot be written: {error.strerror}", field="out", remedy="Name a folder of yours.")


def read_signer(path: Path) -> Signer:
    """The private key of a PEM file.

    Raises:
        InputError: it cannot be read, or is no Ed25519 key. What it holds is not shown.
    """
    data = _read(path)
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path} is no private Ed25519 key without a password", field="key", remedy=_MAKE)
    return Signer.of(key)


def read_public(path: Path) -> PublicKey:
    """The public key of a PEM file.

    Raises:
        InputError: it cannot be read, or is no Ed25519 key.
    """
    data = _read(path)
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{path} is no public Ed25519 key", field="key", remedy=f"Name a {PUBLIC_NAME}.")
    return PublicKey.of(key)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", field="key", remedy=_MAKE) from error
