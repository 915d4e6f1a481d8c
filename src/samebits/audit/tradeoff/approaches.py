"""The approaches, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from samebits.audit.targets import ModelSpec, TransformersSpec
from samebits.models.load import SMOLLM2, find_smollm2

DEFAULT: Final = "default"
TEMPERATURE: Final = 0.8  # of the sampled ones


@dataclass(frozen=True, kw_only=True)
class Approach:
    """One way to run a model.

    Attributes:
        name: for the results.
        what: in a line.
        spec: how its target is made.
        temperature: 0 is greedy.
        seeded: whether each request has a seed.
    """

    name: str
    what: str
    spec: ModelSpec | TransformersSpec
    temperature: float = 0.0
    seeded: bool = True


def approaches(model: str, streams: int) -> tuple[Approach, ...]:
    """All approaches for one model, that of most scripts first.

    Args:
        model: as ``LLM`` takes it.
        streams: requests that the framework pads into one batch at most.

    Raises:
        ModelError: the bundled model is not installed.
    """
    path = str(find_smollm2()) if model == SMOLLM2 else model

    def stock(name: str, *, batch: int = streams, deterministic: bool = False) -> TransformersSpec:
        return TransformersSpec(name=name, path=path, max_batch=batch, deterministic=deterministic, unpack=True)

    def ours(name: str, profile: str = "bf16") -> ModelSpec:
        return ModelSpec(name=name, path=model, profile=profile)

    return (
        Approach(
            name=DEFAULT,
            what="torch and transformers in bf16; requests that wait together share a batch",
            spec=stock(DEFAULT),
        ),
        Approach(name="one at a time", what="the same without batches", spec=stock("one at a time", batch=1)),
        Approach(
            name="framework-deterministic",
            what="the same with batches, torch.use_deterministic_algorithms, one thread",
            spec=stock("framework-deterministic", deterministic=True),
        ),
        *(
            Approach(
                name=f"batch-invariant {profile}",
                what=f"samebits in the profile {profile}",
                spec=ours(f"batch-invariant {profile}", profile),
            )
            for profile in ("fp32", "bf16", "int8")
        ),
        Approach(
            name="sampled, no seed",
            what=f"the default at temperature {TEMPERATURE:g}",
            spec=stock("sampled, no seed"),
            temperature=TEMPERATURE,
            seeded=False,
        ),
        Approach(
            name="sampled, a seed",
            what=f"the default at temperature {TEMPERATURE:g}, one seed for each request",
            spec=stock("sampled, a seed"),
            temperature=TEMPERATURE,
        ),
        Approach(
            name="batch-invariant, no seed",
            what=f"samebits in bf16 at temperature {TEMPERATURE:g}",
            spec=ours("batch-invariant, no seed"),
            temperature=TEMPERATURE,
            seeded=False,
        ),
        Approach(
            name="batch-invariant, a seed",
            what=f"samebits in bf16 at temperature {TEMPERATURE:g}, one seed for each request",
            spec=ours("batch-invariant, a seed"),
            temperature=TEMPERATURE,
        ),
    )
