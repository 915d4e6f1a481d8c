"""What a grammar costs in a step of 32 sequences: finding what is allowed, choosing among it, taking it in; and what is
left of the engine's throughput.

The parts are in CPU time of the engine's thread, which is the only one that works then; other load hardly moves it.
Throughput is the best of interleaved rounds.

``python -m benchmarks.constraints``
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from samebits import LLM, kernels
from samebits.engine import SamplingParams
from samebits.engine.request import Sequence
from samebits.engine.sampler import sample_rows
from samebits.engine.stops import StopMatcher
from samebits.models.load import load_source
from samebits.structured import GrammarCompiler, JsonObject, JsonSchema, Lark, Regex, StructuredSpec, Vocabulary

STREAMS, STEPS = 32, 80
NEW_TOKENS, ROUNDS = 128, 3
SPECS: dict[str, StructuredSpec] = {
    "JSON schema": JsonSchema.of(
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string", "minLength": 8, "maxLength": 40}, "age": {"type": "integer"}},
                "required": ["name", "age"],
                "additionalProperties": False,
            },
            "minItems": 40,
        }
    ),
    "JSON object": JsonObject(),
    "pattern": Regex("([a-z]{3,8} ){60,90}"),
    "grammar": Lark('start: (word "," ){60,90}\nword: /[a-z]{3,9}/'),
}


@dataclass(frozen=True)
class Cost:
    """CPU milliseconds of a step: the median of each part."""

    compiled: float
    allowed: float
    chosen: float
    taken: float


def milliseconds(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.thread_time()
    result = work()
    return (time.thread_time() - begin) * 1e3, result


def measure(compiler: GrammarCompiler, spec: StructuredSpec | None, vocab_size: int, eos_ids: tuple[int, ...]) -> Cost:
    """Random logits, so that texts wander; an output that ends begins anew."""
    ctx, rng = kernels.Context(1), np.random.default_rng(0)
    stream: Any = None  # no text is made of the tokens
    compiled, grammar = milliseconds(lambda: None if spec is None else compiler.compile(spec))
    sequences = [Sequence(i, i, 0, SamplingParams(), 0, [1], 1, 999, stream, StopMatcher(())) for i in range(STREAMS)]
    constrained = sequences if grammar is not None else []
    for s in constrained:
        s.constraint = grammar.constraint()

    def take(tokens: list[int]) -> None:
        for s, token in zip(constrained, tokens, strict=True):
            ends = token in eos_ids
            if not ends:
                s.constraint.accept(token)
            if ends or s.constraint.finished:
                s.constraint = grammar.constraint()

    parts = []
    for _ in range(STEPS):
        rows = rng.normal(0, 3, (STREAMS, vocab_size)).astype(np.float32)
        allowed, _ = milliseconds(lambda: [s.constraint.allowed() for s in constrained])
        chosen, sampled = milliseconds(lambda rows=rows: sample_rows(ctx, rows, sequences))
        tokens = [s.token_id for s in sampled] if constrained else []
        taken, _ = milliseconds(lambda tokens=tokens: take(tokens))
        parts.append((allowed, chosen, taken))
    return Cost(compiled, *map(statistics.median, zip(*parts, strict=True)))


def throughput() -> dict[str, float]:
    """Tokens per second of 32 streams of equal length, without and with each form that goes on for so long."""
    prompts = [f"{i}. Once upon a time" for i in range(STREAMS)]
    best = dict.fromkeys(("none", "JSON schema", "pattern", "grammar"), 0.0)
    with LLM("smollm2") as llm:
        for _ in range(ROUNDS):
            for name in best:
                spec = SPECS.get(name)
                params = SamplingParams(max_tokens=NEW_TOKENS, temperature=1.0, seed=1, ignore_eos=spec is None)
                time.sleep(0.5)
                begin = time.perf_counter()
                found = llm.generate(prompts, params, structured=spec)
                seconds = time.perf_counter() - begin
                assert all(len(c.token_ids) == NEW_TOKENS for c in found), f"{name}: an answer ended early"
                best[name] = max(best[name], STREAMS * NEW_TOKENS / seconds)
    return best


def main() -> None:
    source = load_source("smollm2")
    vocab_size, eos_ids = source.config.vocab_size, source.tokenizer.eos_ids
    compiler = GrammarCompiler(Vocabulary.of(source.tokenizer, vocab_size, eos_ids))
    table = Table(title=f"A step of {STREAMS} sequences, SmolLM2's vocabulary of {vocab_size}; CPU milliseconds")
    for column in ("form", "compiled once", "what is allowed", "choosing", "taking in", "more than none"):
        table.add_column(column, justify="right")
    none = measure(compiler, None, vocab_size, eos_ids)
    for name, spec in {"none": None, **SPECS}.items():
        cost = none if spec is None else measure(compiler, spec, vocab_size, eos_ids)
        more = cost.allowed + cost.chosen + cost.taken - none.allowed - none.chosen - none.taken
        table.add_row(name, *(f"{x:.1f}" for x in (cost.compiled, cost.allowed, cost.chosen, cost.taken, more)))
    console = Console(width=120)
    console.print(table)
    rates = Table(title=f"Throughput of the engine, {STREAMS} streams of {NEW_TOKENS} tokens")
    for column in ("form", "tok/s", "of none"):
        rates.add_column(column, justify="right")
    best = throughput()
    for name, rate in best.items():
        rates.add_row(name, f"{rate:.0f}", f"{rate / best['none']:.0%}")
    console.print(rates)


if __name__ == "__main__":
    main()
