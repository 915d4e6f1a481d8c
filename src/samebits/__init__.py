"""samebits: reproducible LLM inference, the same bits whatever else the machine does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from samebits.engine.params import SamplingParams
    from samebits.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    """Imports the API at first use, so that `samebits info` and errors do not wait for a tokenizer library."""
    if name == "LLM":
        from samebits.llm import LLM

        return LLM
    if name == "SamplingParams":
        from samebits.engine.params import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'samebits' has no attribute {name!r}")
