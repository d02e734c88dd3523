"""The parts of TensorFlow's C API that the kernel of this module uses, from the library that TensorFlow itself has loaded."""
from __future__ import annotations

import ctypes as c
import pathlib
import threading
from typing import Any, Dict, Optional, Tuple

import tensorflow as tf

_P, _I = c.c_void_p, c.c_int
UNKNOWN = 2  # TF_UNKNOWN
INVALID_ARGUMENT = 3  # TF_INVALID_ARGUMENT
FAILED_PRECONDITION = 9  # TF_FAILED_PRECONDITION
Compute = c.CFUNCTYPE(None, _P, _P, _P)


class StringView(c.Structure):
    """TF_StringView."""
    _fields_ = [("data", c.c_void_p), ("length", c.c_size_t)]

    def __str__(self) -> str:
        return c.string_at(self.data, self.length).decode()


def _load() -> c.CDLL:
    folder = pathlib.Path(tf.sysconfig.get_lib())
    try:
        return c.CDLL(str(folder / "libtensorflow_framework.so.2"))
    except OSError as error:
        raise ImportError(f"aiacc.tensorflow needs TensorFlow's libtensorflow_framework.so.2 in {folder}: {error}") from error


def _functions(library: c.CDLL, signatures: Dict[str, Tuple[Any, ...]]) -> Any:
    found = type("CApi", (), {})()
    for name, (result, *arguments) in signatures.items():
        try:
            function = getattr(library, f"TF_{name}")
        except AttributeError:
            raise ImportError(f"TensorFlow {tf.__version__} has no TF_{name}: aiacc.tensorflow needs 2.15 or newer") from None
        function.restype, function.argtypes = result, arguments
        setattr(found, name, function)
    return found


_library = _load()
api = _functions(_library, {
    "NewStatus": (_P,), "DeleteStatus": (None, _P), "GetCode": (_I, _P), "Message": (c.c_char_p, _P), "SetStatus": (None, _P, _I, c.c_char_p),
    "NewOpDefinitionBuilder": (_P, c.c_char_p), "OpDefinitionBuilderAddAttr": (None, _P, c.c_char_p),
    "OpDefinitionBuilderAddInput": (None, _P, c.c_char_p), "OpDefinitionBuilderAddOutput": (None, _P, c.c_char_p),
    "OpDefinitionBuilderSetIsStateful": (None, _P, c.c_bool), "OpDefinitionBuilderSetShapeInferenceFunction": (None, _P, _P),
    "ShapeInferenceContextSetUnknownShape": (None, _P, _P), "RegisterOpDefinition": (None, _P, _P),
    "NewAsyncKernelBuilder": (_P, c.c_char_p, c.c_char_p, _P, Compute, _P), "RegisterKernelBuilder": (None, c.c_char_p, _P, _P),
    "GetInput": (None, _P, _I, c.POINTER(_P), _P), "NumInputs": (_I, _P), "ExpectedOutputDataType": (_I, _P, _I),
    "GetOpKernelName": (StringView, _P),
    "AllocateOutput": (_P, _P, _I, _I, _P, _I, c.c_size_t, _P),
    "ForwardInputOrAllocateOutput": (_P, _P, _P, _I, _I, _P, _I, c.POINTER(_I), _P),
    "OpKernelContext_Failure": (None, _P, _P), "RunAsyncOpKernelDoneCallback": (None, _P),
    "TensorData": (_P, _P), "NumDims": (_I, _P), "Dim": (c.c_int64, _P, _I), "TensorType": (_I, _P), "DeleteTensor": (None, _P),
})


class Status:
    """A TF_Status. `check` raises what a call has left in it."""

    def __init__(self) -> None:
        self.handle = api.NewStatus()

    def check(self) -> None:
        if api.GetCode(self.handle) != 0:
            raise RuntimeError(f"TensorFlow: {api.Message(self.handle).decode(errors='replace')}")

    def __del__(self) -> None:
        api.DeleteStatus(self.handle)


# --- what a kernel calls when it is done
#
# TensorFlow passes its std::function<void()> by the address of an argument, which is gone when the kernel's function returns; one that
# completes later has to move it elsewhere. libstdc++'s has 16 bytes for what it calls, which may be copied as they are, a function that copies
# and destroys it, null if it is empty, and one that calls it; an object of this layout is what TF_RunAsyncOpKernelDoneCallback takes.

_FUNCTION_BYTES, _MANAGER = 32, 16
_DESTROY = 3  # std::__destroy_functor
_Manager = c.CFUNCTYPE(c.c_bool, _P, _P, _I)
_pthread = c.CDLL(None)
_pthread.pthread_self.restype = c.c_ulong
_pthread.pthread_getattr_np.argtypes = (c.c_ulong, _P)
_pthread.pthread_attr_getstack.argtypes = (_P, c.POINTER(_P), c.POINTER(c.c_size_t))
_pthread.pthread_attr_destroy.argtypes = (_P,)


def _own_stack() -> Tuple[int, int]:
    """Where the calling thread's begins and ends."""
    attributes, begin, size = c.create_string_buffer(64), _P(), c.c_size_t()
    _pthread.pthread_getattr_np(_pthread.pthread_self(), attributes)
    _pthread.pthread_attr_getstack(attributes, c.byref(begin), c.byref(size))
    _pthread.pthread_attr_destroy(attributes)
    return begin.value or 0, (begin.value or 0) + size.value


_MAIN = threading.main_thread().ident
_main_stack: Optional[Tuple[int, int]] = None  # that of other threads is found quickly


def _is_on_stack(address: int) -> bool:
    global _main_stack
    if threading.get_ident() != _MAIN:
        begin, end = _own_stack()
    else:
        _main_stack = begin, end = _main_stack or _own_stack()
    return begin <= address < end


class Done:
    """Tells TensorFlow, once, that a kernel has completed; from any thread."""

    def __init__(self, given: int) -> None:
        self._moved: Optional[Any] = None
        self._address = given
        if _is_on_stack(given):
            self._moved = (c.c_char * _FUNCTION_BYTES)()
            self._address = c.addressof(self._moved)
            c.memmove(self._address, given, _FUNCTION_BYTES)
            c.memset(given + _MANAGER, 0, _FUNCTION_BYTES - _MANAGER)

    def __call__(self) -> None:
        api.RunAsyncOpKernelDoneCallback(self._address)
        if self._moved is not None:
            manager = _P.from_address(self._address + _MANAGER).value
            if manager:
                _Manager(manager)(self._address, self._address, _DESTROY)
