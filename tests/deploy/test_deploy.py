"""The files under deploy/: the configurations are good, and the engines run in the mode that they are declared to."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml

from samebits.api.config import make_config, read_config
from samebits.gateway.levels import includes
from samebits.gateway.policy import known_policies
from samebits.gateway.settings import UpstreamConfig

DEPLOY = Path(__file__).parents[2] / "deploy"
CONFIGS = sorted((DEPLOY / "samebits").glob("*.yaml"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
ENGINES = [path for path in MANIFESTS if path.stem != "gateway"]


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def pods(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pod templates of a workload."""
    spec = document["spec"]
    if document["kind"] == "Deployment":
        yield spec["template"]
    elif document["kind"] == "LeaderWorkerSet":
        yield from (spec["leaderWorkerTemplate"][name] for name in ("leaderTemplate", "workerTemplate"))


def is_deterministic(container: dict[str, Any]) -> bool:
    """Whether a container runs in the mode that makes answers independent of the load."""
    environment = {entry["name"]: entry.get("value") for entry in container.get("env", ())}
    words = " ".join(map(str, [*container.get("command", ()), *container.get("args", ())]))
    return environment.get("VLLM_BATCH_INVARIANT") == "1" or "--enable-deterministic-inference" in words


def services() -> dict[str, dict[str, Any]]:
    """Name of a service to its document; the same name stands for one node and for several."""
    found = {}
    for path in MANIFESTS:
        for document in documents(path):
            if document["kind"] == "Service":
                found[document["metadata"]["name"]] = document
    return found


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_configuration_is_good(path: Path) -> None:
    config = make_config(read_config(path))
    known = known_policies(config.policies)
    for name, model in config.models.items():
        assert isinstance(model, UpstreamConfig)
        assert model.policy is None or model.policy in known
        assert model.stronger is None or model.stronger in config.models, name
        policy = known[model.policy or "plain"]
        assert includes(model.level, policy.level), f"{name}: its policy asks for more than it gives"
    assert config.ledger.url is not None
    assert not config.is_loopback
    assert config.api_keys_file is not None


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_what_is_declared_to_be_invariant_is_a_service_here(path: Path) -> None:
    for model in make_config(read_config(path)).upstreams.values():
        if includes(model.level, "batch"):
            address = urlsplit(model.base_url)
            assert services()[str(address.hostname)]["spec"]["ports"][0]["port"] == address.port


@pytest.mark.parametrize("path", ENGINES, ids=lambda path: path.stem)
def test_every_process_of_an_engine_is_in_its_deterministic_mode(path: Path) -> None:
    templates = [pod for document in documents(path) for pod in pods(document)]
    assert templates
    for pod in templates:
        assert pod["metadata"]["labels"]["role"] == "engine", "the network policy does not know it"
        [container] = pod["spec"]["containers"]
        assert is_deterministic(container)
        assert ":latest" not in container["image"], "an engine that changes by itself has other bits tomorrow"


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_service_finds_its_pods(path: Path) -> None:
    all_of_them = documents(path)
    labels = [pod["metadata"]["labels"] for document in all_of_them for pod in pods(document)]
    for service in (document for document in all_of_them if document["kind"] == "Service"):
        assert any(service["spec"]["selector"].items() <= own.items() for own in labels)


def checked_form(document: dict[str, Any]) -> None:
    """Checks a document by Kubernetes' own schemas, strictly: a field that is not known is an error.

    Those of a LeaderWorkerSet are not among them, but its pods are pods.
    """
    parts = [document]
    if document["kind"] == "LeaderWorkerSet":
        common = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": document["metadata"]}
        parts = [{**common, "template": pod} for pod in pods(document)]
    for part in parts:
        kubernetes_validate.validate(part, "1.37", strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_is_one_by_the_schemas_of_kubernetes(path: Path) -> None:
    for document in documents(path):
        checked_form(document)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_negative_control_a_misspelt_field_is_seen(path: Path) -> None:
    [workload] = [document for document in documents(path) if next(pods(document), None)]
    for wrong in ({"enw": []}, {"ports": "8000"}, {"readinessProbe": {"httpGet": {"path": "/health"}}}):
        broken = copy.deepcopy(workload)
        next(pods(broken))["spec"]["containers"][0].update(wrong)
        with pytest.raises(kubernetes_validate.ValidationError):
            checked_form(broken)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_who_serves_is_asked_whether_it_is_ready(path: Path) -> None:
    for document in documents(path):
        for pod in pods(document):
            [container] = pod["spec"]["containers"]
            ports = {port["name"] for port in container.get("ports", ())}
            probes = [probe for name, probe in container.items() if name.endswith("Probe")]
            if pod["metadata"]["labels"].get("part") != "worker":
                assert container["readinessProbe"], "a service sends requests while the model is being loaded"
            assert {probe["httpGet"]["port"] for probe in probes} <= ports
            assert container["resources"], "a pod without resources is the first one to be put out"


def test_negative_control_an_engine_without_its_mode_is_seen() -> None:
    for path in ENGINES:
        pod = next(pod for document in documents(path) for pod in pods(document))
        [container] = copy.deepcopy(pod["spec"]["containers"])
        container["env"] = [entry for entry in container["env"] if entry["name"] != "VLLM_BATCH_INVARIANT"]
        container["args"] = [a for a in container["args"] if a != "--enable-deterministic-inference"]
        assert not is_deterministic(container)
