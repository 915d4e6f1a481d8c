"""Models on disk and the decoder: configuration, weights, tokenizer, chat template."""

from samebits.models.chat_template import DEFAULT_DATE, ChatTemplate
from samebits.models.config import ModelConfig, RopeScaling
from samebits.models.generation_defaults import Default, GenerationDefaults
from samebits.models.load import SMOLLM2, load_source
from samebits.models.rope import inverse_frequencies
from samebits.models.source import ModelSource, RawTensor
from samebits.models.tokenizer import TextStream, Tokenizer

__all__ = [
    "DEFAULT_DATE",
    "SMOLLM2",
    "ChatTemplate",
    "Default",
    "GenerationDefaults",
    "ModelConfig",
    "ModelSource",
    "RawTensor",
    "RopeScaling",
    "TextStream",
    "Tokenizer",
    "inverse_frequencies",
    "load_source",
]
