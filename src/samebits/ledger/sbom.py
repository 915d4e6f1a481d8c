"""A lock as a bill of materials (CycloneDX 1.6, JSON), and as a Containerfile."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from samebits.ledger.canonical import canonical, digest

# Distributions that make environments and are part of none.
_TOOLS: Final = frozenset({"pip", "setuptools", "wheel"})


def bill(lock: Mapping[str, Any]) -> str:
    """The bill of materials of a lock; the same for the same lock, to the byte."""
    bom = Bom()
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, digest(canonical(lock)))
    packages = lock["environment"]["packages"]
    bom.metadata.component = _package("samebits", packages["samebits"], ComponentType.APPLICATION)
    for name, package in packages.items():
        if name != "samebits":
            bom.components.add(_package(name, package, ComponentType.LIBRARY))
    for name, model in lock["models"].items():
        if "weights" in model:
            bom.components.add(_model(name, model))
    bom.register_dependency(bom.metadata.component, bom.components)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    document["metadata"].pop("timestamp", None)  # a lock has no date
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _package(name: str, package: Mapping[str, Any], kind: ComponentType) -> Component:
    url = PackageURL("pypi", name=name, version=package["version"])
    files = [Property(name="samebits:files", value=package["digest"])] if package["digest"] else []
    return Component(
        type=kind, name=name, version=package["version"], purl=url, bom_ref=url.to_string(), properties=files
    )


def _model(name: str, model: Mapping[str, Any]) -> Component:
    keys = ("profile", "fingerprint", "tokenizer", "chat_template", "generation_defaults")
    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=name,
        bom_ref=f"model:{name}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=model["weights"].removeprefix("sha256:"))],
        properties=[Property(name=f"samebits:{key}", value=model[key]) for key in keys if model[key]],
    )


def containerfile(lock: Mapping[str, Any]) -> str:
    """A Containerfile that installs the locked versions, and fails where anything that can move a bit is different.

    Beside it stand the lock, the wheel of samebits (``make wheel``), and what the lock names by path.
    """
    return "\n".join(_steps(lock)) + "\n"


def _steps(lock: Mapping[str, Any]) -> Iterator[str]:
    environment = lock["environment"]
    python = environment["python"].split()[-1]
    yield f"# Written by samebits lock --containerfile, on {environment['machine']}. To build: podman build ."
    yield f"FROM docker.io/library/python:{python}-slim"
    yield "RUN python -m venv /opt/samebits"
    yield "ENV PATH=/opt/samebits/bin:$PATH"
    pins = [
        f"{name}=={package['version']}"
        for name, package in environment["packages"].items()
        if name not in _TOOLS and name != "samebits"
    ]
    # Without dependencies: all of them are in the list, and none may choose a version.
    yield "RUN /opt/samebits/bin/pip install --no-deps --no-cache-dir \\"
    yield " \\\n".join(f"    {pin}" for pin in pins)
    yield "COPY dist/samebits-*.whl /tmp/"
    yield "RUN /opt/samebits/bin/pip install --no-deps --no-cache-dir /tmp/samebits-*.whl"
    yield "WORKDIR /srv"
    yield "COPY samebits.lock samebits.yaml ./"
    yield "RUN samebits lock --check --bits --config samebits.yaml"
    yield 'ENTRYPOINT ["samebits"]'
    # Not on any difference: system, kernel and processor are those of the machine that it runs on.
    yield 'CMD ["serve", "--config", "samebits.yaml", "--locked", "samebits.lock", "--locked-bits"]'
