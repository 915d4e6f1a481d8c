"""From a use case to an approach, a configuration and the reason (``samebits advise``)."""

from samebits.audit.advise.advice import Advice, advise
from samebits.audit.advise.needs import QUESTIONS, Needs, read_needs
from samebits.audit.advise.rules import RULES, Rule

__all__ = ["QUESTIONS", "RULES", "Advice", "Needs", "Rule", "advise", "read_needs"]
