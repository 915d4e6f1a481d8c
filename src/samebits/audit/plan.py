"""The experiment: which requests, under which conditions, in which order. Pure and deterministic.

Runs of a prompt are spread over all combinations of the factors' levels, and within each combination evenly over blocks
of time and over orders of the prompts, so that the influence of each can be told apart. A block is what runs under one
combination at one time in one order; nothing else of the plan runs beside it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

from samebits.audit.observation import Condition, as_condition
from samebits.audit.prompts import Prompt, prompts_digest
from samebits.audit.targets import Ask, Prices, most_refusals
from samebits.counted import counted
from samebits.errors import InputError
from samebits.numerics import digest_json

# Background requests that are released with a request of the plan, where load is on; 1.6 on average.
BACKGROUND: Final = (0, 1, 1, 2, 4)
FIRST_BACKGROUND: Final = 4
BACKGROUND_TOKENS: Final = 48  # of an answer, at most
BACKGROUND_WORDS: Final = 80  # of a question, at most; about two tokens each
CHARACTERS_PER_TOKEN: Final = 4  # English, roughly; for estimates of cost alone
MOST_CONCURRENCY: Final = 1024
LEVELS: Final[dict[str, tuple[str, ...]]] = {
    "load": ("off", "on"),
    "prefix": ("cold", "warm"),
    "streaming": ("off", "on"),
    "seed": ("fixed", "none"),
}
_WORDS: Final = (
    "river",
    "stone",
    "window",
    "paper",
    "north",
    "copper",
    "lantern",
    "harbour",
    "seven",
    "winter",
    "garden",
    "signal",
    "bread",
    "thread",
    "mountain",
    "clock",
    "letter",
    "engine",
    "salt",
    "mirror",
    "orchard",
    "bridge",
    "silver",
    "coat",
    "candle",
    "market",
    "road",
    "wheel",
    "feather",
    "anchor",
)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is to be done, whatever the target.

    Attributes:
        runs: of each prompt under each combination of concurrency, load, prefix, streaming and seed.
        concurrency: levels: requests in flight.
        load: levels: random other requests off, on.
        prefix: levels: prefix cache cold, warm; none leaves it as it comes.
        streaming: levels: off, on.
        seeds: levels: the same seed each time (``fixed``), no seed (``none``).
        times: blocks of time.
        orders: orders of the prompts.
        temperature, top_p: None leaves them to the target.
        seed: the one that is sent.
        max_tokens: most tokens of an answer.
        top_logprobs: best tokens to ask for beside each log-probability; None asks for no log-probabilities.
        shuffle: seed of the plan's own randomness: orders, load.

    Raises:
        InputError: a value is out of range.
    """

    runs: int = 10
    concurrency: tuple[int, ...] = (1, 8, 32)
    load: tuple[str, ...] = ("off",)
    prefix: tuple[str, ...] = ()
    streaming: tuple[str, ...] = ("off",)
    seeds: tuple[str, ...] = ("fixed",)
    times: int = 2
    orders: int = 2
    temperature: float | None = 0.0
    top_p: float | None = None
    seed: int = 7
    max_tokens: int = 128
    top_logprobs: int | None = 5
    shuffle: int = 1

    def __post_init__(self) -> None:
        for name, low, high in (
            ("runs", 2, 10**7),
            ("times", 1, 1000),
            ("orders", 1, 1000),
            ("max_tokens", 1, 10**6),
            ("seed", -(2**63), 2**63 - 1),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"{value} is out of range", field=name, remedy=f"Give {low} to {high}.")
        for level in self.concurrency:
            if not 1 <= level <= MOST_CONCURRENCY:
                raise InputError(
                    f"{level} is out of range", field="concurrency", remedy=f"Give 1 to {MOST_CONCURRENCY}, by commas."
                )
        for name, levels in self.factors().items():
            if len(set(levels)) != len(levels) or (not levels and name != "prefix"):
                raise InputError("no level, or one twice", field=name, remedy="Give each level once.")
            if not set(levels) <= set(LEVELS.get(name, levels)):
                raise InputError(
                    f"{', '.join(levels)}: unknown", field=name, remedy=f"Give {' or '.join(LEVELS[name])}."
                )
        if self.times > self.runs:
            raise InputError(
                f"{counted(self.times, 'block')} of time are more than {counted(self.runs, 'run')}",
                field="times",
                remedy="Give more runs.",
            )
        for name, low, high in (("temperature", 0, 2), ("top_p", 0, 1)):
            number = getattr(self, name)
            if number is not None and not low <= number <= high:
                raise InputError(f"{number} is out of range", field=name, remedy=f"Give {low} to {high}.")
        if self.top_logprobs is not None and not 0 <= self.top_logprobs <= 20:
            raise InputError(f"{self.top_logprobs} is out of range", field="top_logprobs", remedy="Give 0 to 20.")

    def factors(self) -> dict[str, tuple[str, ...]]:
        """Factor → its levels, but for times and orders."""
        return {
            "concurrency": tuple(map(str, self.concurrency)),
            "load": self.load,
            "prefix": self.prefix,
            "streaming": self.streaming,
            "seed": self.seeds,
        }

    @property
    def runs_in_all(self) -> int:
        """Runs of each prompt, over all combinations of the factors."""
        return self.runs * math.prod(len(levels) or 1 for levels in self.factors().values())


def read_experiment(head: Mapping[str, Any]) -> Experiment:
    """The experiment that the first line of a journal describes; see ``Plan.document``.

    Raises:
        InputError: it describes none; the field at fault is named.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Experiment).validate_python(head.get("experiment"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("experiment", *first["loc"])))
        raise InputError(f"{where}: {first['msg']}", field="journal", remedy="Name a journal.") from None


@dataclass(frozen=True)
class Step:
    """One request of the plan.

    Attributes:
        index: its place in the plan; the journal refers to it.
        prompt: index of its prompt.
        run: see ``Observation``.
        background: background requests that are released with it.
    """

    index: int
    prompt: int
    run: int
    background: int


@dataclass(frozen=True)
class Block:
    """What runs under one condition.

    Attributes:
        condition: as in ``Observation``.
        concurrency: requests in flight.
        load, cold, warm, stream, seeded: the levels of the other factors.
        order: the prompts' indices, in the order in which they are asked.
        repeats: times that all prompts are asked.
        first: index of the first step.
        shuffle: seed of the load.
    """

    condition: Condition
    concurrency: int
    load: bool
    cold: bool
    warm: bool
    stream: bool
    seeded: bool
    order: tuple[int, ...]
    repeats: int
    first: int
    shuffle: int

    @property
    def size(self) -> int:
        """Requests of the plan in it."""
        return self.repeats * len(self.order)

    def steps(self) -> Iterator[Step]:
        """Its requests, in order."""
        rng = random.Random(f"background {self.shuffle} {self.first}")
        index = self.first
        for run, prompt in itertools.product(range(self.repeats), self.order):
            released = 0
            if self.load:
                released = FIRST_BACKGROUND if index == self.first else rng.choice(BACKGROUND)
            yield Step(index, prompt, run, released)
            index += 1


@dataclass(frozen=True)
class Counts:
    """How many requests a plan has, for each target.

    Attributes:
        measured, background, warming, probes: of each kind.
        refusals: first questions more that it takes at most where a server refuses parts of them, one at a time.
    """

    measured: int
    background: int
    warming: int
    probes: int
    refusals: int

    @property
    def total(self) -> int:
        """All of them, where no first question is refused."""
        return self.measured + self.background + self.warming + self.probes


@dataclass(frozen=True)
class Plan:
    """An experiment over prompts. Blocks and steps are made when they are asked for; nothing grows with the runs."""

    experiment: Experiment
    prompts: tuple[Prompt, ...]

    def blocks(self) -> Iterator[Block]:
        """All blocks, in order."""
        e, first = self.experiment, 0
        prefixes: tuple[str | None, ...] = e.prefix or (None,)
        cells = list(itertools.product(e.concurrency, e.load, prefixes, e.streaming, e.seeds))
        orders = [self._order(order) for order in range(e.orders)]
        for time in range(e.times):
            # Another sequence of conditions at each time, so that no condition always follows the same one.
            for cell in random.Random(f"cells {e.shuffle} {time}").sample(cells, len(cells)):
                concurrency, load, prefix, streaming, seed = cell
                for order in range(e.orders):
                    repeats = sum(r * e.times // e.runs == time and r % e.orders == order for r in range(e.runs))
                    if repeats == 0:
                        continue
                    levels = {
                        "concurrency": str(concurrency),
                        "load": load,
                        "streaming": streaming,
                        "seed": seed,
                        "time": str(time),
                        "order": str(order),
                    } | ({} if prefix is None else {"prefix": prefix})
                    block = Block(
                        condition=as_condition(levels),
                        concurrency=concurrency,
                        load=load == "on",
                        cold=prefix == "cold",
                        warm=prefix == "warm",
                        stream=streaming == "on",
                        seeded=seed == "fixed",
                        order=orders[order],
                        repeats=repeats,
                        first=first,
                        shuffle=e.shuffle,
                    )
                    yield block
                    first += block.size

    def _order(self, order: int) -> tuple[int, ...]:
        """Order 0 is that of the file."""
        indices = list(range(len(self.prompts)))
        if order:
            random.Random(f"order {self.experiment.shuffle} {order}").shuffle(indices)
        return tuple(indices)

    def ask(self, block: Block, step: Step) -> Ask:
        """The question of a step."""
        return self._ask(self.prompts[step.prompt], stream=block.stream, seeded=block.seeded)

    def _ask(self, prompt: Prompt, *, stream: bool, seeded: bool) -> Ask:
        e = self.experiment
        return Ask(
            messages=prompt.messages,
            max_tokens=e.max_tokens,
            temperature=e.temperature,
            top_p=e.top_p,
            seed=e.seed if seeded else None,
            top_logprobs=e.top_logprobs,
            schema=prompt.schema,
            stream=stream,
        )

    def probes(self) -> tuple[Ask, ...]:
        """One question of each shape: streamed and not, with a schema and without."""
        examples = {prompt.schema is not None: prompt for prompt in reversed(self.prompts)}
        seeded = "fixed" in self.experiment.seeds
        return tuple(
            self._ask(prompt, stream=stream == "on", seeded=seeded)
            for stream in self.experiment.streaming
            for prompt in examples.values()
        )

    def warming(self, prompt: Prompt) -> Ask:
        """A question that leaves the prompt in the prefix cache and costs least."""
        return Ask(messages=prompt.messages, max_tokens=1)

    def background(self, step: Step, number: int) -> Ask:
        """A random other question, released with a step."""
        rng = random.Random(f"load {self.experiment.shuffle} {step.index} {number}")
        words = " ".join(rng.choices(_WORDS, k=rng.randint(4, BACKGROUND_WORDS)))
        message = {"role": "user", "content": f"Write a story with these words: {words}."}
        return Ask(messages=(message,), max_tokens=rng.randint(1, BACKGROUND_TOKENS))

    @cached_property
    def counts(self) -> Counts:
        """The number of requests."""
        measured = background = warming = 0
        for block in self.blocks():
            measured += block.size
            background += sum(step.background for step in block.steps()) if block.load else 0
            warming += len(self.prompts) if block.warm else 0
        probes = self.probes()
        return Counts(measured, background, warming, len(probes), most_refusals(probes))

    def cost(self, prices: Prices) -> float:
        """What it costs at most, if a token has about four characters and each answer is as long as it may be."""
        counts, e = self.counts, self.experiment
        characters = sum(prompt.characters for prompt in self.prompts)
        repeated = (counts.measured + counts.warming) / len(self.prompts)
        read = repeated * characters / CHARACTERS_PER_TOKEN + counts.background * BACKGROUND_WORDS * 2
        written = counts.measured * e.max_tokens + counts.background * BACKGROUND_TOKENS + counts.warming
        return (read * prices.input + written * prices.output) / 1e6

    @property
    def runs_of_a_prompt(self) -> int:
        """Runs of each prompt that are to agree: all but those without a seed."""
        e = self.experiment
        return self.counts.measured // len(self.prompts) * e.seeds.count("fixed") // len(e.seeds)

    def warnings(self) -> list[str]:
        """What the plan will not show, in words."""
        said = []
        smallest = min(block.size for block in self.blocks())
        out_of_reach = [c for c in self.experiment.concurrency if c > smallest]
        if out_of_reach:
            shown = ", ".join(map(str, out_of_reach))
            said.append(
                f"A block has only {counted(smallest, 'request')}, so concurrency {shown} is not reached: more runs."
            )
        if "none" in self.experiment.seeds and not self.experiment.temperature:
            said.append("At temperature 0 the arm without a seed need not vary, so it shows nothing about seeds.")
        return said

    def document(self) -> dict[str, Any]:
        """The plan, of JSON's types; its digest stands for it."""
        prompts = prompts_digest(self.prompts)
        return {"experiment": asdict(self.experiment), "prompts": prompts, "prompt_ids": [p.id for p in self.prompts]}

    def digest(self, targets: Sequence[object]) -> str:
        """Digest of the plan and of the targets' descriptions."""
        return digest_json({"plan": self.document(), "targets": [repr(target) for target in targets]})
