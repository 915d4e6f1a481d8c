"""The doctor: what is set too late or wrongly is said to be without effect; what it looks at stays as it was."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from samebits.audit.doctor import Facts, Finding, changes, examine, gather, judge
from samebits.audit.doctor.facts import Library
from samebits.audit.doctor.hazards import PACKAGES, SWITCHES, VARIABLES

PLAIN = Facts(
    cpu="a CPU",
    isa=("avx2",),
    cpus=4,
    gpus=(),
    packages={"numpy": "2"},
    loaded=frozenset({"numpy", "openblas"}),
    at_start={},
    now={},
    libraries=(Library("blas", "openblas", "0.3", 4, "Zen"),),
    hash_fixed=False,
    cuda_used=False,
)
GPU = replace(PLAIN, gpus=("H200",), packages={"torch": "2.13"}, loaded=frozenset({"torch"}))
CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


def finding(facts: Facts, name: str) -> Finding:
    [found] = [f for f in judge(facts) if f.name == name]
    return found


def with_variable(facts: Facts, name: str, value: str, *, at_start: bool, **others: Any) -> Facts:
    return replace(facts, now={name: value}, at_start={name: value} if at_start else {}, **others)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (with_variable(GPU, CUBLAS, ":4096:8", at_start=False, cuda_used=True), "ineffective"),
        (with_variable(GPU, CUBLAS, ":4096:8", at_start=False), "ok"),  # CUDA will read it
        (with_variable(GPU, CUBLAS, ":4096:8", at_start=True, cuda_used=True), "ok"),
        (with_variable(GPU, CUBLAS, ":16:8", at_start=True), "ok"),
        (with_variable(GPU, CUBLAS, ":4096:2", at_start=True), "invalid"),
        (GPU, "hazard"),
    ],
)
def test_the_workspace_of_cublas(facts: Facts, state: str) -> None:
    found = finding(facts, CUBLAS)
    assert found.state == state
    assert bool(found.remedy) == (state != "ok")


def test_it_does_not_matter_without_a_gpu() -> None:
    assert CUBLAS not in {f.name for f in judge(replace(GPU, gpus=()))}


@pytest.mark.parametrize(
    ("now", "at_start", "hash_fixed", "state"),
    [
        ({}, {}, False, "hazard"),
        ({"PYTHONHASHSEED": "2"}, {}, False, "ineffective"),
        ({"PYTHONHASHSEED": "2"}, {"PYTHONHASHSEED": "2"}, True, "ok"),
        ({"PYTHONHASHSEED": "2"}, {"PYTHONHASHSEED": "1"}, False, "ineffective"),
    ],
)
def test_the_seed_of_hashes(now: dict[str, str], at_start: dict[str, str], hash_fixed: bool, state: str) -> None:
    assert finding(replace(PLAIN, now=now, at_start=at_start, hash_fixed=hash_fixed), "PYTHONHASHSEED").state == state


def test_threads_that_were_set_too_late_are_seen_by_the_library_itself() -> None:
    late = with_variable(PLAIN, "OMP_NUM_THREADS", "1", at_start=False)
    assert finding(late, "OMP_NUM_THREADS").state == "ineffective"
    assert "4 threads" in finding(late, "OMP_NUM_THREADS").hazard
    assert finding(with_variable(PLAIN, "OMP_NUM_THREADS", "4", at_start=False), "OMP_NUM_THREADS").state == "ok"
    assert finding(PLAIN, "OMP_NUM_THREADS").state == "hazard"


def test_tensorflow_set_after_import_is_too_late() -> None:
    facts = replace(PLAIN, packages={"tensorflow": "2.20"})
    name = "TF_DETERMINISTIC_OPS"
    loaded = frozenset({"tensorflow"})
    assert finding(with_variable(facts, name, "1", at_start=False, loaded=loaded), name).state == "ineffective"
    assert finding(with_variable(facts, name, "1", at_start=False), name).state == "hazard"  # raises since 2.6
    seeds = replace(facts, switches={"tensorflow.op_determinism": "on", "tensorflow.global_seed": "not set"})
    assert finding(seeds, "tensorflow.op_determinism").state == "ok"
    assert finding(seeds, "tensorflow.global_seed").state == "hazard"


@pytest.mark.parametrize("name", ["MKL_CBWR", "MKL_DYNAMIC"])
def test_mkl_inside_torch_reads_once_it_computes(name: str) -> None:
    """Nobody can see whether it has; so a late setting is no certain one, and is not called ineffective either."""
    value = {"MKL_CBWR": "COMPATIBLE", "MKL_DYNAMIC": "FALSE"}[name]
    late = finding(with_variable(GPU, name, value, at_start=False), name)
    assert late.state == "hazard"
    assert "only if MKL had not computed anything" in late.hazard
    for early in (
        with_variable(GPU, name, value, at_start=True),
        with_variable(GPU, name, value, at_start=False, loaded=frozenset({"numpy"})),
    ):
        assert "had not computed" not in finding(early, name).hazard


def test_warn_only_is_not_deterministic() -> None:
    for value, state in (("on", "ok"), ("warn only", "hazard"), ("off", "hazard")):
        facts = replace(GPU, switches={"torch.deterministic_algorithms": value})
        assert finding(facts, "torch.deterministic_algorithms").state == state


def test_what_misleads_comes_first() -> None:
    facts = with_variable(GPU, CUBLAS, ":4096:2", at_start=True)
    assert judge(facts)[0].name == CUBLAS
    assert judge(facts)[0].misleads


def test_a_system_that_does_not_tell_the_first_environment_accuses_nobody() -> None:
    facts = with_variable(GPU, CUBLAS, ":4096:8", at_start=True, cuda_used=True)
    assert finding(replace(facts, at_start=None), CUBLAS).state == "ok"


@pytest.mark.parametrize("row", [*PACKAGES, *VARIABLES, *SWITCHES], ids=lambda row: row.name)
def test_every_row_of_the_table_says_what_to_do(row: Any) -> None:
    assert row.remedy
    assert getattr(row, "hazard", None) or row.unset or row.set or row.name.endswith("_NUM_THREADS")


def test_names_are_unique() -> None:
    for table in (PACKAGES, VARIABLES, SWITCHES):
        names = [row.name for row in table]
        assert len(names) == len(set(names))


# ---- this very process -----------------------------------------------------------------------------------------------


def test_looking_changes_nothing() -> None:
    random.seed(5)
    before = gather()
    examine()
    after = gather()
    assert changes(before, after) == []
    assert random.random() == random.Random(5).random()


def test_a_helper_that_reseeds_or_sets_variables_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    state = np.random.get_state(legacy=False)
    before = gather()
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    np.random.seed(1)
    said = changes(before, gather())
    np.random.set_state(state)
    assert said == [
        "CUDA_LAUNCH_BLOCKING: not set → 1 (cost: much slower)",
        "the random state of numpy was changed",
    ]


def test_the_probes_tell_a_fixed_order_from_the_vendors() -> None:
    names = [probe.name for probe in examine().probes]
    assert names[:2] == ["numpy: a row alone and in a batch", "numpy: one thread and all"]
    for probe in examine().probes:
        assert probe.detail


def test_facts_of_this_machine() -> None:
    facts = gather()
    assert facts.packages["numpy"]
    assert facts.cpus >= 1
    assert facts.at_start is not None
    assert set(facts.random_states) >= {"random", "numpy"}
    assert any(library.api == "blas" for library in facts.libraries)
