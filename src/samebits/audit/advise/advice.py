"""The advice for given needs, with a configuration that can be used as it is."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.audit.advise.needs import Needs
from samebits.audit.advise.rules import RULES, Rule


@dataclass(frozen=True)
class Advice:
    """What to do.

    Attributes:
        needs: the answers.
        rule: the one that holds for them.
        command: what takes the configuration: ``samebits serve --config`` or ``samebits audit``.
        file: a name for it.
        config: it, as YAML.
    """

    needs: Needs
    rule: Rule
    command: str
    file: str
    config: str


def advise(needs: Needs) -> Advice:
    """The advice for these answers."""
    import yaml

    [rule] = [rule for rule in RULES if rule.holds(needs)]
    if rule.serve is not None:
        values = {"models": {"model": dict(rule.model)}, **rule.serve}
        command, file = "samebits serve --config samebits.yaml", "samebits.yaml"
    else:
        values = {"targets": [dict(target) for target in rule.targets]}
        command, file = rule.check, "targets.yaml"
    return Advice(needs, rule, command, file, yaml.safe_dump(values, sort_keys=False))
