"""What moves bits, as data: packages, environment variables and switches of frameworks, each with hazard and remedy.

Sources are named where a claim is not plain from the package's own manual: issues of the projects concerned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# When a variable is read. Set later, it does nothing, although it can be seen in os.environ.
Read = Literal["interpreter start", "library load", "first use of MKL", "first use of CUDA"]


@dataclass(frozen=True, kw_only=True)
class Package:
    """An installed package that can move bits.

    Attributes:
        name: of the distribution.
        hazard, remedy: in words.
    """

    name: str
    hazard: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Variable:
    """An environment variable that can move bits.

    Attributes:
        name: of the variable.
        read: when it is read.
        readers: modules that read it (``openblas``, ``mkl``, ``openmp``: libraries found loaded).
        packages: it matters only where one of these is installed; empty: always.
        gpu: it matters only where there is a GPU.
        values: the only values that do anything; empty: any.
        unset: the hazard while it is not set; empty: none.
        set: the hazard while it is set; empty: none.
        remedy: what to do.
        cost: what setting it costs.
    """

    name: str
    read: Read
    readers: tuple[str, ...]
    remedy: str
    packages: tuple[str, ...] = ()
    gpu: bool = False
    values: tuple[str, ...] = ()
    unset: str = ""
    set: str = ""
    cost: str = "none"


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A setting inside a framework, read while the framework is loaded.

    Attributes:
        name: as ``Facts.switches`` has it.
        good: values without hazard.
        hazard, remedy: in words.
        cost: what the good value costs.
        gpu: it matters only where there is a GPU.
    """

    name: str
    good: tuple[str, ...]
    hazard: str
    remedy: str
    cost: str = "none"
    gpu: bool = False


_BATCH: Final = "picks its kernels, and with them the order of sums, by the shape of the batch"
_PIN: Final = "Pin the version, and measure again after every change (samebits audit)."

PACKAGES: Final = (
    Package(name="torch", hazard=f"{_BATCH}; releases change kernels", remedy=_PIN),
    Package(
        name="tensorflow",
        hazard=f"{_BATCH}; oneDNN and GPU kernels differ from run to run unless told otherwise",
        remedy="Call tf.config.experimental.enable_op_determinism() and tf.random.set_seed first of all.",
    ),
    Package(name="jax", hazard="XLA compiles other code for another shape, device or version", remedy=_PIN),
    Package(
        name="vllm",
        hazard="batches whatever arrives together; cuts prompts by load; reuses prefixes",
        remedy="VLLM_BATCH_INVARIANT=1 where the hardware allows; send a seed; audit under load.",
    ),
    Package(
        name="sglang",
        hazard="batches whatever arrives together; cuts prompts by load; reuses prefixes",
        remedy="--enable-deterministic-inference; send a seed; audit under load.",
    ),
    Package(
        name="llama-cpp-python",
        hazard="batches concurrent requests, and sums in another order for another batch",
        remedy="One slot, or audit under load.",
    ),
    Package(
        name="onnxruntime", hazard=_BATCH, remedy="use_deterministic_compute, a fixed number of threads, fixed shapes."
    ),
    Package(name="openvino", hazard=f"{_BATCH}; converts to other number formats by device", remedy=_PIN),
    Package(name="ctranslate2", hazard=_BATCH, remedy="Fixed batches, a fixed number of threads."),
    Package(
        name="flash-attn", hazard="split count in decoding depends on the whole batch", remedy="Fix the split size."
    ),
    Package(
        name="xformers", hazard="picks an attention kernel by shape", remedy="Name the kernel, and pin the version."
    ),
    Package(name="triton", hazard="autotuning may pick another tile, and another order, in each process", remedy=_PIN),
    Package(name="bitsandbytes", hazard="quantised kernels change between releases", remedy=_PIN),
    Package(
        name="deepspeed", hazard="reduces over devices in an order of its own", remedy="Fix the number of devices."
    ),
    Package(
        name="transformers",
        hazard="pads requests into batches, which moves bits; releases change templates and defaults of generation",
        remedy="Batches of one where bits matter; pin the version; give every parameter of generation.",
    ),
    Package(
        name="tokenizers",
        hazard="releases have changed the ids of the same text",
        remedy="Pin the version; keep golden ids of a few texts; send token ids where you can.",
    ),
    Package(name="sentencepiece", hazard="releases have changed the ids of the same text", remedy="Pin the version."),
    Package(
        name="jinja2", hazard="renders the chat template; a template may ask for today's date", remedy="Pin the date."
    ),
    Package(
        name="numpy",
        hazard="its BLAS picks kernels by CPU, threads and shape",
        remedy="Fixed CPU type, threads and shapes, or kernels with a stated order.",
    ),
    Package(name="scipy", hazard="carries a BLAS of its own, beside numpy's", remedy="See the BLAS libraries below."),
    Package(
        name="mkl", hazard="picks kernels by CPU, threads, shape and alignment", remedy="MKL_CBWR, and fixed threads."
    ),
    Package(name="cupy", hazard=_BATCH, remedy=_PIN),
)

_THREADS: Final = "the number of threads follows the machine, and sums are split by it"

VARIABLES: Final = (
    Variable(
        name="PYTHONHASHSEED",
        read="interpreter start",
        readers=(),
        unset="the order of a set of texts differs in each process, and so does a prompt that is built from one",
        remedy="Export it before Python starts, or sort what comes out of sets.",
    ),
    Variable(
        name="OMP_NUM_THREADS",
        read="library load",
        readers=("openmp", "openblas", "mkl"),
        unset=_THREADS,
        remedy="Export the same number everywhere.",
        cost="idle processors, if it is low",
    ),
    Variable(
        name="OPENBLAS_NUM_THREADS",
        read="library load",
        readers=("openblas",),
        remedy="Export the same number everywhere.",
        cost="idle processors, if it is low",
    ),
    Variable(
        name="MKL_NUM_THREADS",
        read="library load",
        readers=("mkl",),
        packages=("mkl", "torch"),
        remedy="Export the same number everywhere.",
        cost="idle processors, if it is low",
    ),
    Variable(
        name="OMP_DYNAMIC",
        read="library load",
        readers=("openmp",),
        values=("false", "FALSE", "0"),
        set="OpenMP may take fewer threads when the machine is busy, which moves bits",
        remedy="Unset it, or set it to FALSE.",
    ),
    Variable(
        name="MKL_DYNAMIC",
        read="first use of MKL",
        readers=("mkl", "torch"),
        packages=("mkl", "torch"),
        values=("FALSE", "false", "0"),
        unset="MKL may take fewer threads than it was given",
        remedy="Export MKL_DYNAMIC=FALSE.",
    ),
    Variable(
        name="MKL_CBWR",
        read="first use of MKL",
        readers=("mkl", "torch"),
        packages=("mkl",),
        unset="MKL picks kernels by CPU and alignment",
        set="holds for one CPU type and number of threads; it does not make a row independent of its batch",
        remedy="Export MKL_CBWR=COMPATIBLE or AVX2,STRICT; still fix shapes and threads.",
        cost="up to several times slower",
    ),
    Variable(
        name="OPENBLAS_CORETYPE",
        read="library load",
        readers=("openblas",),
        unset="OpenBLAS picks kernels by CPU, so that another machine gives other bits",
        remedy="Export the same type on all machines, such as Haswell.",
        cost="slower on newer CPUs",
    ),
    Variable(
        name="NPY_DISABLE_CPU_FEATURES",
        read="library load",
        readers=("numpy",),
        set="numpy takes other loops, whose last bits may differ",
        remedy="The same on all machines.",
    ),
    Variable(
        name="ONEDNN_MAX_CPU_ISA",
        read="library load",
        readers=("torch", "tensorflow"),
        packages=("torch", "tensorflow"),
        unset="oneDNN picks kernels by CPU",
        remedy="Export the same on all machines, such as AVX2.",
        cost="slower on newer CPUs",
    ),
    Variable(
        name="ONEDNN_DEFAULT_FPMATH_MODE",
        read="library load",
        readers=("torch", "tensorflow"),
        packages=("torch", "tensorflow"),
        values=("STRICT", "strict"),
        set="float32 products may be computed in bf16",
        remedy="Unset it, or STRICT.",
    ),
    Variable(
        name="CUBLAS_WORKSPACE_CONFIG",
        read="first use of CUDA",
        readers=("torch", "tensorflow", "cupy"),
        packages=("torch", "tensorflow", "cupy"),
        gpu=True,
        values=(":4096:8", ":16:8"),
        unset="cuBLAS may sum in another order when several streams are in use",
        remedy="Export :4096:8 before the process starts (pytorch/pytorch#72831).",
        cost="24 MiB of GPU memory for :4096:8; time for :16:8",
    ),
    Variable(
        name="CUDA_LAUNCH_BLOCKING",
        read="first use of CUDA",
        readers=("torch", "tensorflow"),
        gpu=True,
        set="nothing for bits; every kernel is waited for (huggingface/transformers#16549)",
        remedy="Unset it outside debugging.",
        cost="much slower",
    ),
    Variable(
        name="NVIDIA_TF32_OVERRIDE",
        read="first use of CUDA",
        readers=("torch", "tensorflow"),
        gpu=True,
        values=("0",),
        set="float32 products are rounded to TF32 whatever the framework says",
        remedy="Unset it, or 0.",
    ),
    Variable(
        name="TF_DETERMINISTIC_OPS",
        read="library load",
        readers=("tensorflow",),
        packages=("tensorflow",),
        set="best effort up to 2.5; from 2.6 on, operations without a deterministic form raise "
        "(tensorflow/tensorflow#51466)",
        remedy="Call tf.config.experimental.enable_op_determinism() after tf.random.set_seed.",
        cost="slower; some operations raise",
    ),
    Variable(
        name="TF_CUDNN_DETERMINISTIC",
        read="library load",
        readers=("tensorflow",),
        packages=("tensorflow",),
        gpu=True,
        set="covers cuDNN alone; other GPU operations still vary",
        remedy="Call tf.config.experimental.enable_op_determinism().",
    ),
    Variable(
        name="TF_ENABLE_ONEDNN_OPTS",
        read="library load",
        readers=("tensorflow",),
        packages=("tensorflow",),
        values=("0",),
        unset="oneDNN reorders sums; TensorFlow itself warns of it",
        remedy="Export TF_ENABLE_ONEDNN_OPTS=0.",
        cost="slower",
    ),
    Variable(
        name="XLA_FLAGS",
        read="library load",
        readers=("jax", "tensorflow"),
        packages=("jax",),
        gpu=True,
        unset="XLA autotunes GPU kernels in each process",
        remedy="Export --xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0.",
        cost="slower",
    ),
    Variable(
        name="VLLM_BATCH_INVARIANT",
        read="library load",
        readers=("vllm",),
        packages=("vllm",),
        values=("1",),
        unset="answers depend on which other requests share the batch",
        remedy="Export VLLM_BATCH_INVARIANT=1 where the hardware allows it, and audit under load.",
        cost="slower; recent NVIDIA GPUs only",
    ),
    Variable(
        name="NCCL_ALGO",
        read="first use of CUDA",
        readers=("torch", "vllm", "sglang"),
        packages=("torch",),
        gpu=True,
        unset="reductions over GPUs pick ring or tree by message size",
        remedy="With several GPUs export the same algorithm everywhere, such as Ring.",
        cost="slower for some sizes",
    ),
)

SWITCHES: Final = (
    Switch(
        name="torch.deterministic_algorithms",
        good=("on",),
        hazard="operations may use atomics and vary from run to run; 'warn only' warns and varies all the same",
        remedy="torch.use_deterministic_algorithms(True), without warn_only.",
        cost="slower; operations without a deterministic form raise, such as cumsum on CUDA in some releases",
        gpu=True,
    ),
    Switch(
        name="torch.cudnn.benchmark",
        good=("off",),
        hazard="picks a convolution by timing it, so that each process may pick another",
        remedy="torch.backends.cudnn.benchmark = False.",
        cost="slower convolutions",
        gpu=True,
    ),
    Switch(
        name="torch.cuda.matmul.allow_tf32",
        good=("off",),
        hazard="float32 products are rounded to TF32 on some GPUs and not on others",
        remedy="torch.backends.cuda.matmul.allow_tf32 = False.",
        cost="slower float32",
        gpu=True,
    ),
    Switch(
        name="torch.cuda.matmul.reduced_precision",
        good=("off",),
        hazard="half-precision sums may be split and added in half precision",
        remedy="torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction and allow_bf16_… = False.",
        cost="slower half precision",
        gpu=True,
    ),
    Switch(
        name="torch.float32_matmul_precision",
        good=("highest",),
        hazard="float32 products may be computed in TF32 or bf16",
        remedy="torch.set_float32_matmul_precision('highest').",
        cost="slower float32",
    ),
    Switch(
        name="tensorflow.op_determinism",
        good=("on",),
        hazard="GPU operations and input pipelines vary from run to run",
        remedy="tf.config.experimental.enable_op_determinism(), first of all.",
        cost="slower; operations without a deterministic form raise, each by name",
    ),
    Switch(
        name="tensorflow.global_seed",
        good=("set",),
        hazard="random operations without a seed of their own vary, and raise under op determinism",
        remedy="tf.random.set_seed(…), and seeds for random image operations.",
    ),
)
