"""Continuous batching: requests in, tokens out, the same bits whatever else runs."""

from samebits.engine.beam import BeamCompletion, BeamParams, BeamSearch, Searches, run_searches
from samebits.engine.constraint import Constraint
from samebits.engine.engine import Engine, ModelLimits, Stats
from samebits.engine.params import SamplingParams
from samebits.engine.prompt_scores import PromptScores
from samebits.engine.request import Completion, Event, Request
from samebits.engine.resolve import Effective, describe, resolve
from samebits.engine.scheduler import Limits
from samebits.engine.top_logprobs import TopLogprob

__all__ = [
    "BeamCompletion",
    "BeamParams",
    "BeamSearch",
    "Completion",
    "Constraint",
    "Effective",
    "Engine",
    "Event",
    "Limits",
    "ModelLimits",
    "PromptScores",
    "Request",
    "SamplingParams",
    "Searches",
    "Stats",
    "TopLogprob",
    "describe",
    "resolve",
    "run_searches",
]
