from typing import Annotated

import numpy
from numpy.typing import NDArray

class Context:
    def __init__(self, threads: int, isa: str) -> None: ...
    @property
    def threads(self) -> int: ...
    @property
    def isa(self) -> str: ...

class PackedMatrix:
    def __init__(self, profile: str, rows: int, cols: int) -> None: ...
    def set_rows(
        self,
        context: Context,
        row0: int,
        rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    ) -> None: ...
    @property
    def profile(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

class KvCache:
    def __init__(self, profile: str, layers: int, pages: int, page_size: int, kv_heads: int, head_dim: int) -> None: ...
    def zero_pages(
        self, pages: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)]
    ) -> None: ...
    @property
    def pages(self) -> int: ...
    @property
    def page_size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

def isas() -> list[str]: ...
def dispatch() -> dict[str, dict[str, str]]: ...
def linear(
    context: Context,
    x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    w: PackedMatrix,
    out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    residual: bool = False,
) -> None: ...
def round_bf16(
    x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def embedding(
    context: Context,
    ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    w: PackedMatrix,
    out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def rmsnorm(
    context: Context,
    x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    weight: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    eps: float,
    out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def silu_mul(
    context: Context,
    gate_up: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def rope_store(
    context: Context,
    qkv: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    slots: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    cos: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    sin: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    cache: KvCache,
    layer: int,
    q_out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def attention(
    context: Context,
    q: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    cache: KvCache,
    layer: int,
    positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    seq_starts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    block_tables: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def log_softmax(
    context: Context,
    logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def argmax(
    context: Context,
    logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
def topk(
    context: Context,
    logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    ids: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C", device="cpu")],
    values: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def sample(
    context: Context,
    logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int,
    token_index: int,
    choice: int,
) -> int: ...
def philox(seed: int, token_index: int, choice: int) -> int: ...
def dequantize(
    type_name: str,
    src: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """
    Writes the weights in src (uint8, whole blocks of type_name) to out (float32); see csrc/dequant.h.

    Raises ValueError where the sizes do not agree or the type is unknown.
    """
