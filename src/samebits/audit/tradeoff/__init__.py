"""What reproducibility costs: approaches measured side by side, in speed and in how often they repeat themselves."""

from samebits.audit.tradeoff.approaches import Approach, approaches
from samebits.audit.tradeoff.measure import Row, Size, Speed, Tradeoff, compare
from samebits.audit.tradeoff.published import PUBLISHED, Published

__all__ = ["PUBLISHED", "Approach", "Published", "Row", "Size", "Speed", "Tradeoff", "approaches", "compare"]
