"""Facts, findings and tests of bits in one place."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.audit.doctor.facts import Facts, gather
from samebits.audit.doctor.judge import Finding, judge
from samebits.audit.doctor.probes import Probe, run_probes


@dataclass(frozen=True)
class Examination:
    """What was found in this process."""

    facts: Facts
    findings: tuple[Finding, ...]
    probes: tuple[Probe, ...]

    @property
    def misled(self) -> bool:
        """Whether some setting looks as if it helped and does not."""
        return any(finding.misleads for finding in self.findings)


def examine() -> Examination:
    """Looks at this process as it is now. Changes nothing in it."""
    facts = gather()
    return Examination(facts, tuple(judge(facts)), tuple(run_probes()))
