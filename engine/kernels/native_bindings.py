"""Three ways from Python to the kernels' C functions: ctypes, pybind11, nanobind.

Each is a mapping from a function's name to a callable that takes the C arguments in order, with contiguous NumPy arrays
of the exact type in the place of pointers and without the last two, which carry the message of a failure. All three let
go of the interpreter lock for the call of a kernel. Three functions do nothing and measure the call itself, each with
the lock kept and, under its name with `_released`, let go: `empty_call`, `take_pointers`, `take_arrays`.
"""

import ctypes
from collections.abc import Callable, Mapping
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ConfigError
from engine.kernels.artefact_header import misfit
from engine.kernels.native_library import NativeLibrary

KernelFunctions = Mapping[str, Callable[..., object]]


class _Text:
    """A Python string for a `const char*`."""

    @classmethod
    def from_param(cls, text: str) -> object:
        return ctypes.c_char_p.from_param(text.encode())


class _Array:
    """A contiguous NumPy array of one type for a pointer: `ndpointer` without its cost of 4 µs an array."""

    dtype: np.dtype[np.generic]

    @classmethod
    def from_param(cls, array: NDArray[np.generic]) -> ctypes.c_void_p:
        if array.dtype != cls.dtype or not array.flags.c_contiguous:
            raise TypeError(
                f"expected a contiguous array of {cls.dtype}, got {array.dtype} with strides {array.strides}"
            )
        return ctypes.c_void_p(array.ctypes.data)


_TEXT, _INT, _FLOAT, _POINTER, _HANDLE = _Text, ctypes.c_int32, ctypes.c_float, ctypes.c_void_p, ctypes.c_int64
_FLOATS, _BYTES, _INT8S, _INTS, _HANDLES = (
    type(f"_{name}", (_Array,), {"dtype": np.dtype(name)}) for name in ("float32", "uint8", "int8", "int32", "int64")
)
# Mirrors native/kernel_api.h.
_ARGUMENTS = {
    "matmul": (_TEXT, _TEXT, _BYTES, _INT, _INT, _FLOATS, _INT, _FLOATS),
    "unpack": (_TEXT, _TEXT, _BYTES, _INT, _INT, _FLOATS),
    "activation_steps": (_TEXT, _TEXT, _INT, _INTS),
    "quantize_row": (_TEXT, _FLOATS, _INT, _INT, _INT8S, _FLOATS, _FLOATS, _INTS),
    "rms_norm": (_TEXT, _FLOATS, _FLOATS, _INT, _INT, _FLOAT, _FLOATS),
    "softmax": (_TEXT, _FLOATS, _INT, _INT, _FLOATS),
    "swiglu": (_TEXT, _FLOATS, _FLOATS, _INT, _FLOATS),
    "rope": (_TEXT, _FLOATS, _FLOATS, _FLOATS, _INT, _INT, _INT, _FLOATS),
    "pack_cache": (_TEXT, _INT, _FLOATS, _FLOATS, _INT, _INTS, *(_INT,) * 4, _HANDLES),
    "free_cache": (_HANDLE,),
    "attention": (_TEXT, _HANDLE, _FLOATS, *(_INT,) * 4, _FLOATS),
    "sequence_attention": (_TEXT, _HANDLE, _FLOATS, *(_INT,) * 3, _FLOATS),
    "pack_matrix": (_TEXT, _TEXT, _BYTES, _INT, _INT, _HANDLES),
    "matmul_packed": (_TEXT, _HANDLE, _FLOATS, _INT, _FLOATS),
    "free_matrix": (_HANDLE,),
    "add_rests": (_TEXT, _TEXT, _BYTES, _INT, _INT, _FLOATS, _INT, _FLOATS),
}
_MESSAGE_BYTES = 300


def through_ctypes(library: NativeLibrary) -> KernelFunctions:
    """Return the functions through ctypes; a failure raises ConfigError."""
    functions: dict[str, Callable[..., object]] = {}
    keeping_lock = ctypes.PyDLL(str(library.path))
    for suffix, handle in (("", keeping_lock), ("_released", library.handle)):
        functions[f"empty_call{suffix}"] = _function(handle, "empty_call")
        for kind, array in (("pointers", _POINTER), ("arrays", _FLOATS)):
            functions[f"take_{kind}{suffix}"] = _function(handle, "take_arguments", array, array, _INT, _FLOAT, array)
    for name, arguments in _ARGUMENTS.items():
        functions[name] = _checked(name, _function(library.handle, name, *arguments, ctypes.c_char_p, _INT))
    return functions


def through_module(name: str, path: Path, library: NativeLibrary) -> KernelFunctions:
    """Return the functions through the built module of a binding; a failure raises ValueError.

    Args:
        name: `pybind11` or `nanobind`.
        path: the built module.
        library: whose functions it calls.

    Raises:
        ConfigError: the module can't be loaded.
    """
    why = misfit(path)
    if why:
        raise ConfigError(f"the {name} module can't be loaded: {path}: {why}")
    loader = ExtensionFileLoader(f"pellucid_{name}", str(path))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
        functions: KernelFunctions = module.open_library(str(library.path))
    except (ImportError, RuntimeError) as error:
        raise ConfigError(f"the {name} module can't be loaded: {error}") from None
    return functions


def _function(handle: ctypes.CDLL, name: str, *arguments: Any) -> Callable[..., object]:
    function = handle[f"pellucid_{name}"]  # a new object each time, unlike the attribute: argument types are its own
    function.restype = ctypes.c_int32
    function.argtypes = arguments
    return function


def _checked(name: str, function: Callable[..., object]) -> Callable[..., object]:
    def call(*arguments: object) -> None:
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        if function(*arguments, message, _MESSAGE_BYTES):
            raise ConfigError(f"`{name}`: {message.value.decode(errors='replace')}")

    return call
