"""What is so in this process: gathered, not judged. Imports no framework; looks only into those that are loaded."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
import pickle
import platform
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from samebits.audit.doctor.hazards import PACKAGES, VARIABLES
from samebits.kernels.context import usable_cpus

ISA_FLAGS: Final = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "sve")


@dataclass(frozen=True)
class Library:
    """A BLAS or OpenMP library that is loaded, as threadpoolctl tells."""

    api: str
    name: str
    version: str
    threads: int
    kernels: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that is judged.

    Attributes:
        cpu: its name.
        isa: of ISA_FLAGS, those that it has.
        cpus: usable by this process.
        gpus: names of GPUs.
        packages: distribution → version, of those in PACKAGES.
        loaded: top-level modules and kinds of libraries that are loaded, of those that read variables.
        at_start: variables of VARIABLES when the process started; None where the system does not tell.
        now: variables of VARIABLES in os.environ.
        libraries: BLAS and OpenMP.
        hash_fixed: whether this process hashes texts as a new one with the present variables would.
        cuda_used: whether a framework has begun to use CUDA.
        switches: name → value, of frameworks that are loaded.
        random_states: generator → digest of its state.
    """

    cpu: str
    isa: tuple[str, ...]
    cpus: int
    gpus: tuple[str, ...]
    packages: Mapping[str, str]
    loaded: frozenset[str]
    at_start: Mapping[str, str] | None
    now: Mapping[str, str]
    libraries: tuple[Library, ...]
    hash_fixed: bool
    cuda_used: bool
    switches: Mapping[str, str] = field(default_factory=dict)
    random_states: Mapping[str, str] = field(default_factory=dict)


def gather() -> Facts:
    """The facts of this process."""
    libraries = _libraries()
    modules = {reader for variable in VARIABLES for reader in variable.readers}
    loaded = {name for name in modules if name in sys.modules} | {library.api for library in libraries}
    loaded |= {library.name for library in libraries}
    return Facts(
        cpu=_cpu(),
        isa=_isa(),
        cpus=usable_cpus(),
        gpus=_gpus(),
        packages=_packages(),
        loaded=frozenset(loaded),
        at_start=_at_start(),
        now={v.name: os.environ[v.name] for v in VARIABLES if v.name in os.environ},
        libraries=libraries,
        hash_fixed=_hash_fixed(),
        cuda_used=_cuda_used(),
        switches=_torch_switches() | _tensorflow_switches(),
        random_states=_random_states(),
    )


def _packages() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package.name] = importlib.metadata.version(package.name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _at_start() -> dict[str, str] | None:
    """The environment that the kernel handed to this process; os.environ may have been written to since."""
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return None
    pairs = (entry.partition(b"=") for entry in block.split(b"\0"))
    names = {v.name for v in VARIABLES}
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if os.fsdecode(name) in names}


def _hash_fixed() -> bool:
    """Asks a new process with the present variables: the variable itself may have been set too late."""
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        return False
    text = "samebits"
    asked = subprocess.run(
        [sys.executable, "-S", "-c", f"print(hash({text!r}))"], capture_output=True, text=True, check=False
    )
    return asked.returncode == 0 and int(asked.stdout) == hash(text)


def _libraries() -> tuple[Library, ...]:
    import threadpoolctl

    return tuple(
        Library(
            api=info["user_api"],
            name=info["internal_api"],
            version=info["version"] or "unknown",
            threads=info["num_threads"],
            kernels=info.get("architecture") or "unknown",
        )
        for info in threadpoolctl.threadpool_info()
    )


def _cpuinfo(name: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")


def _cpu() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _isa() -> tuple[str, ...]:
    flags = set((_cpuinfo("flags") or _cpuinfo("Features")).split())
    return tuple(flag for flag in ISA_FLAGS if flag in flags)


def _gpus() -> tuple[str, ...]:
    names = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        lines = path.read_text("utf-8", "replace").splitlines()
        names.append(next((line.partition(":")[2].strip() for line in lines if line.startswith("Model:")), "NVIDIA"))
    if Path("/dev/kfd").exists():
        names.append("AMD")
    return tuple(names)


# ---- frameworks that are loaded --------------------------------------------------------------------------------------


def _cuda_used() -> bool:
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return True
    tensorflow: Any = sys.modules.get("tensorflow")
    return tensorflow is not None and bool(tensorflow.config.list_physical_devices("GPU"))


def _on(value: object) -> str:
    return "on" if value else "off"


def _torch_switches() -> dict[str, str]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return {}
    deterministic = _on(torch.are_deterministic_algorithms_enabled())
    if torch.is_deterministic_algorithms_warn_only_enabled():
        deterministic = "warn only"
    matmul = torch.backends.cuda.matmul
    reduced = matmul.allow_fp16_reduced_precision_reduction or matmul.allow_bf16_reduced_precision_reduction
    return {
        "torch.deterministic_algorithms": deterministic,
        "torch.cudnn.benchmark": _on(torch.backends.cudnn.benchmark),
        "torch.cuda.matmul.allow_tf32": _on(matmul.allow_tf32),
        "torch.cuda.matmul.reduced_precision": _on(reduced),
        "torch.float32_matmul_precision": torch.get_float32_matmul_precision(),
        "torch.threads": str(torch.get_num_threads()),
    }


def _tensorflow_switches() -> dict[str, str]:
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is None:
        return {}
    try:  # there is no public way to ask
        config: Any = importlib.import_module("tensorflow.python.framework.config")
        context: Any = importlib.import_module("tensorflow.python.eager.context")
        deterministic, seed = _on(config.is_op_determinism_enabled()), context.global_seed()
    except (ImportError, AttributeError):
        return {"tensorflow.op_determinism": "unknown", "tensorflow.global_seed": "unknown"}
    return {"tensorflow.op_determinism": deterministic, "tensorflow.global_seed": "not set" if seed is None else "set"}


def _random_states() -> dict[str, str]:
    states: dict[str, bytes] = {"random": pickle.dumps(random.getstate())}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        states["numpy"] = pickle.dumps(numpy.random.get_state(legacy=False))
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return {name: "sha256:" + hashlib.sha256(state).hexdigest() for name, state in states.items()}
