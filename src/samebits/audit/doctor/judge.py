"""From facts to findings. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from samebits.audit.doctor.facts import Facts
from samebits.audit.doctor.hazards import PACKAGES, SWITCHES, VARIABLES, Variable
from samebits.counted import counted

# ``ineffective``: set, and without effect. ``invalid``: a value that nothing understands. ``hazard``: may move bits.
State = Literal["ok", "note", "hazard", "ineffective", "invalid"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        kind: package, variable, switch, library or machine.
        name: of it.
        value: in force, for people.
        state: see State.
        hazard: what can happen; empty where nothing.
        remedy: what to do about it; empty where nothing.
        cost: of the remedy.
    """

    kind: str
    name: str
    value: str
    state: State
    hazard: str = ""
    remedy: str = ""
    cost: str = ""

    @property
    def misleads(self) -> bool:
        """Whether a setting looks as if it helped and does not."""
        return self.state in ("ineffective", "invalid")


def judge(facts: Facts) -> list[Finding]:
    """All findings, those about settings that mislead first."""
    findings = [*_machine(facts), *_packages(facts), *_libraries(facts), *_switches(facts)]
    findings += [_variable(variable, facts) for variable in VARIABLES if _matters(variable, facts)]
    order: list[State] = ["ineffective", "invalid", "hazard", "note", "ok"]
    return sorted(findings, key=lambda finding: order.index(finding.state))


def _machine(facts: Facts) -> Iterator[Finding]:
    isa = ", ".join(facts.isa) or "unknown"
    hazard = "libraries pick kernels by CPU type, so that another machine may give other bits"
    yield Finding(
        "machine", "CPU", f"{facts.cpu} ({isa}), {facts.cpus} usable", "note", hazard, "Note it with results."
    )
    gpu = "atomics and autotuning vary from run to run, and kernels with the GPU type"
    for name in facts.gpus:
        yield Finding("machine", "GPU", name, "note", gpu, "See the variables and switches.")


def _packages(facts: Facts) -> Iterator[Finding]:
    for package in PACKAGES:
        if package.name in facts.packages:
            yield Finding("package", package.name, facts.packages[package.name], "note", package.hazard, package.remedy)


def _libraries(facts: Facts) -> Iterator[Finding]:
    for library in facts.libraries:
        value = f"{library.version}, kernels {library.kernels}, {counted(library.threads, 'thread')}"
        hazard = "the order of its sums follows shape, threads and CPU"
        yield Finding("library", f"{library.name} ({library.api})", value, "note", hazard, "Fix threads and CPU type.")


def _switches(facts: Facts) -> Iterator[Finding]:
    known = {switch.name: switch for switch in SWITCHES}
    for name, value in facts.switches.items():
        switch = known.get(name)
        if switch is None:
            yield Finding("switch", name, value, "note")
        elif value in switch.good:
            yield Finding("switch", name, value, "ok", cost=switch.cost)
        else:
            state: State = "note" if switch.gpu and not facts.gpus else "hazard"
            yield Finding("switch", name, value, state, switch.hazard, switch.remedy, switch.cost)


def _matters(variable: Variable, facts: Facts) -> bool:
    """A variable that is set always matters, since somebody relies on it."""
    if variable.name in facts.now or variable.name in (facts.at_start or {}):
        return True
    installed = not variable.packages or any(name in facts.packages for name in variable.packages)
    return bool(variable.unset) and installed and (bool(facts.gpus) or not variable.gpu)


def _variable(variable: Variable, facts: Facts) -> Finding:
    value = facts.now.get(variable.name)

    def found(state: State, hazard: str) -> Finding:
        shown = "not set" if value is None else value
        remedy = variable.remedy if state != "ok" else ""
        return Finding("variable", variable.name, shown, state, hazard, remedy, variable.cost)

    if value is not None and variable.values and value not in variable.values and not variable.set:
        return found("invalid", f"has no such value; there are {' and '.join(variable.values)}")
    late = _too_late(variable, facts)
    if late:
        return found("ineffective", late)
    if value is not None and variable.read == "first use of MKL" and _changed(variable, facts):
        readers = sorted(set(variable.readers) & facts.loaded)
        if readers:
            said = f"set after {', '.join(readers)} had been loaded: it counts only if MKL had not computed anything"
            return found("hazard", said)
    if value is None:
        return found("hazard", variable.unset) if variable.unset else found("ok", "")
    if variable.set and value not in variable.values:
        return found("hazard", variable.set)
    return found("ok", "")


def _too_late(variable: Variable, facts: Facts) -> str:
    """Why a variable has no effect although it has a value now; empty where it has one, or where nobody can know."""
    value = facts.now.get(variable.name)
    if variable.name == "PYTHONHASHSEED":
        fixed = value not in (None, "random")
        return "" if facts.hash_fixed or not fixed else "set after Python had started: texts are hashed at random"
    if not _changed(variable, facts) or variable.read == "first use of MKL":
        return ""
    if variable.read == "first use of CUDA":
        return "set after CUDA was in use: restart with it" if facts.cuda_used else ""
    readers = sorted(set(variable.readers) & facts.loaded)
    if not readers:
        return ""
    if variable.name.endswith("_NUM_THREADS"):
        kinds = set(variable.readers)
        threads = {library.threads for library in facts.libraries if {library.name, library.api} & kinds}
        if value is not None and threads == {int(value) if value.isdecimal() else -1}:
            return ""  # it was in time, or the library was told in another way
        return (
            f"set after {', '.join(readers)} had been loaded, which runs {', '.join(map(str, sorted(threads)))} threads"
        )
    return f"set at run time, and {', '.join(readers)} is loaded: it counts only if it was set before that"


def _changed(variable: Variable, facts: Facts) -> bool:
    """Whether it is known to have been set, or set anew, since the process started."""
    return facts.at_start is not None and facts.now.get(variable.name) != facts.at_start.get(variable.name)


def changes(before: Facts, after: Facts) -> list[str]:
    """What changed between two looks at one process, in words: variables, switches with their costs, random states.

    Take one look before a helper that promises determinism, and one after it.
    """
    said = []
    costs = {switch.name: switch.cost for switch in SWITCHES} | {v.name: v.cost for v in VARIABLES}
    for old, new in ((before.now, after.now), (before.switches, after.switches)):
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                cost = costs.get(name, "none")
                said.append(f"{name}: {old.get(name, 'not set')} → {new.get(name, 'not set')} (cost: {cost})")
    both = before.random_states.keys() & after.random_states.keys()
    moved = sorted(name for name in both if before.random_states[name] != after.random_states[name])
    return said + [f"the random state of {name} was changed" for name in moved]
