"""Which backends of the laboratory's kernels exist here, and why the others don't."""

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.errors import ConfigError
from engine.kernels.binding_build import build_binding, find_binding, find_package
from engine.kernels.build import BuildError, build_library, find_library
from engine.kernels.kernel_inputs import AttentionInputs, Inputs, MatmulInputs, Steps
from engine.kernels.native_bindings import KernelFunctions, through_ctypes, through_module
from engine.kernels.native_kernels import NativeKernels
from engine.kernels.native_library import NativeLibrary
from engine.kernels.prepared import KernelMakers, PreparedKernel

KERNELS = ("rms_norm", "softmax", "swiglu", "rope", "matmul_int8", "matmul_int4", "paged_attention")
BACKENDS = ("numpy", "torch", "ctypes", "pybind11", "nanobind", "torch-cuda", "triton")
NATIVE_BACKENDS = ("ctypes", "pybind11", "nanobind")

Say = Callable[[str], None]
BackendStateName = Literal["available", "unavailable", "failed"]


@dataclass(frozen=True, slots=True)
class Backend:
    """One way to compute the kernels.

    Attributes:
        name: one of BACKENDS.
        version: of the library behind it; of the native ones the instruction set.
        device: `cpu` or the CUDA device's name; "" when it isn't available.
        state: `available`; `unavailable`: something isn't there; `failed`: it should work and doesn't.
        reason: why it isn't available; "" when it is.
        kernels: what it computes; empty when it isn't available.
        functions: the C functions of a native one, for the cost of a call.
        rounding: to how many steps its products with weights in an encoding round rows of num_inputs activations; None:
            it doesn't round.
    """

    name: str
    version: str = ""
    device: str = ""
    state: BackendStateName = "available"
    reason: str = ""
    kernels: KernelMakers = field(default_factory=dict)
    functions: KernelFunctions | None = None
    rounding: Callable[[str, int], Steps | None] | None = None

    def activation_steps(self, inputs: Inputs) -> Steps | None:
        """Return to how many steps the oracle must round the activations of these inputs; None: not at all."""
        if self.rounding is None or not isinstance(inputs, MatmulInputs):
            return None
        return self.rounding(inputs.encoding, inputs.x.shape[1])


def find_backends(say: Say, *, build: bool, instruction_set: str = "auto") -> list[Backend]:
    """Return every backend in the order of BACKENDS, available or not. Loads what is available, torch too.

    Args:
        say: told what is being built, and of artefacts that were deleted.
        build: compile what is missing; otherwise it counts as not available.
        instruction_set: of the native ones.
    """
    return [
        _numpy_backend(),
        _torch_backend(),
        *_native_backends(say, build=build, instruction_set=instruction_set),
        *_cuda_backends(),
    ]


def _numpy_backend() -> Backend:
    from engine.kernels.numpy_kernels import NUMPY_KERNELS

    return Backend("numpy", importlib.metadata.version("numpy"), "cpu", kernels=NUMPY_KERNELS)


def _torch_backend() -> Backend:
    import torch

    from engine.kernels.torch_kernels import TorchKernels

    return Backend("torch", str(torch.__version__), "cpu", kernels=TorchKernels(torch.device("cpu")).makers)


def _native_backends(say: Say, *, build: bool, instruction_set: str) -> list[Backend]:
    try:
        path = build_library(say) if build else find_library(say=say)
        if path is None:
            raise ConfigError("the native kernels aren't built: `pellucid kernels` builds them")
        library = NativeLibrary(path)
        used = library.instruction_set(instruction_set)
        if used is None:
            raise ConfigError(f"this machine has no {instruction_set}")
    except ConfigError as error:
        return [_missing(name, error) for name in NATIVE_BACKENDS]
    return [_native_backend(name, library, used, say, build=build) for name in NATIVE_BACKENDS]


def _native_backend(name: str, library: NativeLibrary, instruction_set: str, say: Say, *, build: bool) -> Backend:
    try:
        version = instruction_set
        if name == "ctypes":
            functions = through_ctypes(library)
        else:
            module = build_binding(name, say) if build else find_binding(name, say)
            if module is None:
                raise ConfigError(f"the {name} module isn't built: `pellucid kernels` builds it")
            functions = through_module(name, module, library)
            version = f"{find_package(name).version}, {instruction_set}"
    except ConfigError as error:
        return _missing(name, error)
    native = NativeKernels(library, instruction_set, functions=functions)
    makers = native_kernel_makers(native)
    return Backend(name, version, "cpu", kernels=makers, functions=functions, rounding=native.activation_steps)


def _missing(name: str, error: ConfigError) -> Backend:
    """Return a backend that isn't available; one whose sources a compiler refused has failed."""
    if isinstance(error, BuildError):
        first = next((line for line in error.message.splitlines() if "error" in line), error.message.splitlines()[0])
        return Backend(name, state="failed", reason=f"the build failed: {first.strip()}")
    return Backend(name, state="unavailable", reason=error.message)


def native_kernel_makers(kernels: NativeKernels) -> KernelMakers:
    """Return the native kernels, called one by one; matrices are packed and caches filled beforehand."""

    def matmul(given: MatmulInputs) -> PreparedKernel:
        packed = kernels.pack(given.weights, given.x.shape[1], encoding=given.encoding)
        return PreparedKernel(lambda: kernels.matmul_packed(given.x, packed), _same)

    def paged_attention(given: AttentionInputs) -> PreparedKernel:
        cache = kernels.page(
            given.keys, given.values, given.block_table, kv_dtype="float16", block_size=given.block_size
        )
        return PreparedKernel(
            lambda: kernels.sequence_attention(given.query, cache, first_num_keys=given.first_num_keys), _same
        )

    return {
        "rms_norm": lambda given: PreparedKernel(lambda: kernels.rms_norm(given.x, given.weight, given.epsilon), _same),
        "softmax": lambda given: PreparedKernel(lambda: kernels.softmax(given.x), _same),
        "swiglu": lambda given: PreparedKernel(lambda: kernels.swiglu(given.gate, given.up), _same),
        "rope": lambda given: PreparedKernel(lambda: kernels.rope(given.x, given.cosines, given.sines), _same),
        "matmul_int8": matmul,
        "matmul_int4": matmul,
        "paged_attention": paged_attention,
    }


def _cuda_backends() -> list[Backend]:
    import torch

    from engine.kernels.torch_kernels import TorchKernels

    if not torch.cuda.is_available():
        reason = f"torch {torch.__version__} sees no CUDA device"
        return [Backend(name, state="unavailable", reason=reason) for name in ("torch-cuda", "triton")]
    device, name = torch.device("cuda"), torch.cuda.get_device_name()
    on_torch = Backend("torch-cuda", str(torch.__version__), name, kernels=TorchKernels(device).makers)
    if importlib.util.find_spec("triton") is None:
        return [on_torch, Backend("triton", state="unavailable", reason="the triton package is not installed")]
    from engine.kernels.triton_kernels import TritonKernels

    version = importlib.metadata.version("triton")
    return [on_torch, Backend("triton", version, name, kernels=TritonKernels(device).makers)]


def _same(result: Any) -> Any:
    return result
