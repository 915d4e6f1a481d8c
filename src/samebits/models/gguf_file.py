"""Reading a GGUF file: metadata and where each tensor lies. Versions 2 and 3, little-endian.

Format: the GGUF specification in the ggml repository (docs/gguf.md). Why not the reader of the ``gguf`` package:
docs/design/0005-gguf-reader.md. Every length is checked against the bytes that are there before anything is allocated.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from samebits.errors import ModelError, shown

# An array is a list of texts or a tuple of numbers, so that each value compares with any other by a plain truth value.
MetadataValue = bool | int | float | str | list[str] | tuple[bool | int | float, ...]

_STRING, _ARRAY = 8, 9
_NUMBERS: Final[Mapping[int, np.dtype[Any]]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
# Names of ggml's tensor types by number, also of those that cannot be read here, for the error that says so.
TENSOR_TYPES: Final = {
    **dict(
        enumerate(
            [
                "F32",
                "F16",
                "Q4_0",
                "Q4_1",
                "Q4_2",
                "Q4_3",
                "Q5_0",
                "Q5_1",
                "Q8_0",
                "Q8_1",
                "Q2_K",
                "Q3_K",
                "Q4_K",
                "Q5_K",
                "Q6_K",
                "Q8_K",
            ]
        )
    ),
    **dict(enumerate(["IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS"], 16)),
    **dict(enumerate(["I8", "I16", "I32", "I64", "F64", "IQ1_M", "BF16"], 24)),
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}
_MAX_DIMENSIONS = 4
_LEAST_STRING_BYTES = 8  # its length
_LEAST_PAIR_BYTES = 8 + 4 + 1  # an empty key, a type, one byte of value
_LEAST_TENSOR_BYTES = 8 + 4 + 4 + 8  # an empty name, no dimension, type, offset


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of the file. ``shape`` is row-major (the file lists the fastest dimension first); ``start`` is
    a byte of the file.
    """

    shape: tuple[int, ...]
    type_name: str
    start: int


@dataclass(frozen=True)
class GgufFile:
    """A parsed header. ``data`` is the whole file as mapped bytes, uint8."""

    path: Path
    data: npt.NDArray[np.uint8]
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, TensorEntry]


def read_gguf(path: Path) -> GgufFile:
    """Map a GGUF file and parse its header.

    Raises:
        ModelError: the file is missing, truncated or damaged, or of a version that cannot be read.
    """
    try:
        data = np.memmap(path, np.uint8, mode="r")
    except OSError as error:
        raise ModelError(f"cannot be read ({error.strerror})", field=str(path), remedy="Check the path.") from error
    except ValueError as error:  # numpy refuses to map an empty file
        raise ModelError("is empty", field=str(path), remedy="Download the file again.") from error
    return _Header(path, data).parse()


class _Header:
    """A position in the file. Each read checks the bounds, then moves on."""

    def __init__(self, path: Path, data: npt.NDArray[np.uint8]) -> None:
        self._path = path
        self._data = data
        self._view = data.data
        self._at = 0

    def parse(self) -> GgufFile:
        if bytes(self._view[:4]) != b"GGUF":
            self._fail("is not a GGUF file (its first bytes are not 'GGUF')")
        self._at = 4
        version = self._unsigned(4)
        if version not in (2, 3):
            self._fail(f"has GGUF version {version}; versions 2 and 3, little-endian, can be read")
        tensor_count, pair_count = self._unsigned(8), self._unsigned(8)
        self._expect(tensor_count, _LEAST_TENSOR_BYTES, "tensors")
        self._expect(pair_count, _LEAST_PAIR_BYTES, "metadata entries")
        metadata: dict[str, MetadataValue] = {}
        for _ in range(pair_count):
            key = self._string()
            if key in metadata:
                self._fail(f"has the metadata key {shown(key)} twice")
            metadata[key] = self._value()
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 8 or alignment % 8 != 0:
            self._fail(f"has general.alignment {shown(alignment)}, not a multiple of 8")
        return GgufFile(self._path, self._data, metadata, self._tensors(tensor_count, alignment))

    def _tensors(self, count: int, alignment: int) -> dict[str, TensorEntry]:
        """The tensor list. The offsets in it count from the end of the header, rounded up to the
        alignment.
        """
        listed: dict[str, TensorEntry] = {}
        for _ in range(count):
            name = self._string()
            dimensions = self._unsigned(4)
            if dimensions > _MAX_DIMENSIONS:
                self._fail(f"gives tensor {shown(name)} {dimensions} dimensions, more than {_MAX_DIMENSIONS}")
            shape = tuple(self._unsigned(8) for _ in range(dimensions))[::-1]
            number, offset = self._unsigned(4), self._unsigned(8)
            if name in listed:
                self._fail(f"has tensor {shown(name)} twice")
            if offset % alignment != 0:
                self._fail(f"puts tensor {shown(name)} at {offset}, not a multiple of the alignment {alignment}")
            listed[name] = TensorEntry(shape, TENSOR_TYPES.get(number, f"number {number}"), offset)
        base = math.ceil(self._at / alignment) * alignment
        return {name: TensorEntry(t.shape, t.type_name, base + t.start) for name, t in listed.items()}

    def _value(self) -> MetadataValue:
        kind = self._unsigned(4)
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._numbers(kind, 1)[0]
        kind, count = self._unsigned(4), self._unsigned(8)
        if kind != _STRING:
            return self._numbers(kind, count)
        self._expect(count, _LEAST_STRING_BYTES, "strings of an array")
        return [self._string() for _ in range(count)]

    def _numbers(self, kind: int, count: int) -> tuple[bool | int | float, ...]:
        if kind not in _NUMBERS:
            self._fail(f"has a metadata value of unknown type {kind}")
        dtype = _NUMBERS[kind]
        self._expect(count, dtype.itemsize, "numbers of an array")
        start = self._at
        self._at += count * dtype.itemsize
        if dtype.kind == "b" and np.any(self._data[start : self._at] > 1):
            self._fail("has a truth value that is neither 0 nor 1")
        return tuple(self._data[start : self._at].view(dtype).tolist())

    def _string(self) -> str:
        length = self._unsigned(8)
        self._expect(length, 1, "bytes of a string")
        start = self._at
        self._at += length
        try:
            return str(self._view[start : self._at], "utf-8")
        except UnicodeDecodeError:
            self._fail("has a string that is not UTF-8")

    def _unsigned(self, size: int) -> int:
        self._expect(size, 1, "bytes of a number")
        start = self._at
        self._at += size
        value: int = (_U32 if size == 4 else _U64).unpack_from(self._view, start)[0]
        return value

    def _expect(self, count: int, size: int, what: str) -> None:
        """Refuse ``count`` things of at least ``size`` bytes each that cannot be in the rest of the file."""
        left = len(self._view) - self._at
        if count * size > left:
            self._fail(f"is truncated or damaged: {count} {what} announced, {left} bytes left")

    def _fail(self, message: str) -> NoReturn:
        raise ModelError(
            f"{message} (header byte {self._at})", field=str(self._path), remedy="Download the file again."
        )


_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
