"""What can be audited: an OpenAI-compatible URL, a model in our engine, or one in transformers."""

from samebits.audit.targets.best_tokens import most_refusals
from samebits.audit.targets.open import open_target
from samebits.audit.targets.spec import HttpSpec, ModelSpec, Prices, TargetSpec, TransformersSpec, read_targets
from samebits.audit.targets.target import Ask, Flight, Reply, Target

__all__ = [
    "Ask",
    "Flight",
    "HttpSpec",
    "ModelSpec",
    "Prices",
    "Reply",
    "Target",
    "TargetSpec",
    "TransformersSpec",
    "most_refusals",
    "open_target",
    "read_targets",
]
