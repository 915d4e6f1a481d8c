"""What is asked before advice is given: five questions with fixed answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_type_hints

from samebits.errors import InputError

UseCase = Literal["evaluation", "classification", "extraction", "assistant", "writing"]
Regulation = Literal["none", "internal", "audited"]
Latency = Literal["batch", "interactive"]
Budget = Literal["hosted", "cpu", "gpu"]
Creativity = Literal["none", "some"]


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The answers.

    Attributes:
        use_case: what the model does.
        regulation: who may ask for an answer again: nobody, your own people, or an auditor.
        latency: whether somebody waits for the answer.
        budget: where the model can run: somebody's service, your CPUs, your GPUs.
        creativity: whether answers should vary between requests.
    """

    use_case: UseCase
    regulation: Regulation
    latency: Latency
    budget: Budget
    creativity: Creativity

    def __post_init__(self) -> None:
        for name, (_, answers) in QUESTIONS.items():
            value = getattr(self, name)
            if value not in answers:
                raise InputError(f"{value!r} is unknown", field=name, remedy=f"Give one of: {', '.join(answers)}.")


_WORDING: Final = {
    "use_case": "What does the model do?",
    "regulation": "Who may ask to see the same answer again: nobody, your own people (internal), an auditor?",
    "latency": "Does somebody wait for the answer?",
    "budget": "Where can the model run: a hosted service, your CPUs, your GPUs?",
    "creativity": "Should answers to one question vary?",
}
# Question → its wording and its answers, in the order of asking.
QUESTIONS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    f.name: (_WORDING[f.name], get_args(get_type_hints(Needs)[f.name])) for f in fields(Needs)
}


def read_needs(path: Path) -> Needs:
    """The answers in a YAML file.

    Raises:
        InputError: the file cannot be read, an answer is missing, unknown or too much.
    """
    import yaml

    try:
        content: Any = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", field="needs", remedy="Name a YAML file.") from error
    except yaml.YAMLError as error:
        raise InputError(f"is not YAML: {error}", field="needs", remedy="Correct the file.") from error
    known = ", ".join(QUESTIONS)
    if not isinstance(content, dict) or content.keys() != QUESTIONS.keys():
        raise InputError("does not answer each question once", field="needs", remedy=f"Give exactly {known}.")
    return Needs(**content)
