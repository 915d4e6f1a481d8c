"""What in this process can move bits: an inventory with hazards and remedies (``samebits doctor``).

from samebits.audit.doctor import examine

for finding in examine().findings:
    print(finding)
"""

from samebits.audit.doctor.examine import Examination, examine
from samebits.audit.doctor.facts import Facts, gather
from samebits.audit.doctor.judge import Finding, changes, judge
from samebits.audit.doctor.probes import Probe, run_probes

__all__ = ["Examination", "Facts", "Finding", "Probe", "changes", "examine", "gather", "judge", "run_probes"]
