"""The compiled part of the back end of torch.distributed (_shim.cc), which is optional: which module belongs to this torch, where it is, and
the methods of a process group that ask it first."""
from __future__ import annotations

import atexit
import ctypes as c
import functools
import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import pathlib
import sysconfig
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from aiacc._library import library
from aiacc._version import __version__
from aiacc.errors import _CLASSES, Error
from aiacc.runtime import leaves_in_order
from aiacc.torch._compile import never_compiled
from aiacc.torch._profile import is_watched

SOURCE = pathlib.Path(__file__).with_name("_shim.cc")
_SOURCES = (SOURCE, SOURCE.with_name("_shim_work.h"))
NAME = "aiacc_torch_shim"
_MARK = b"aiacc-torch-shim for "  # before the key, in the module's file
_CALLS = ("allreduce", "broadcast", "allgather", "reduce_scatter", "alltoallv", "barrier", "send", "recv", "wait_for", "last_error", "last_error_rank")
# Methods of the process group: which function of the module is asked first, the types of its arguments, and the last of them where it is left out.
_GATHER = ("allgather", (torch.Tensor, torch.Tensor), "AllgatherOptions")
_SCATTER = ("reduce_scatter", (torch.Tensor, torch.Tensor), "ReduceScatterOptions")
_ALL_TO_ALL = ("alltoall", (torch.Tensor, torch.Tensor, list, list), "AllToAllOptions")
_METHODS: Dict[str, Tuple[str, Tuple[type, ...], str]] = {
    "allreduce": ("allreduce", (list,), "AllreduceOptions"), "broadcast": ("broadcast", (list,), "BroadcastOptions"),
    "_allgather_base": _GATHER, "all_gather_single": _GATHER, "_reduce_scatter_base": _SCATTER, "reduce_scatter_single": _SCATTER,
    "alltoall_base": _ALL_TO_ALL, "all_to_all_single": _ALL_TO_ALL, "barrier": ("barrier", (), "BarrierOptions"),
    "send": ("send", (list, int), ""), "recv": ("recv", (list, int), "")}
_C: Any = torch._C._distributed_c10d
_log = logging.getLogger("aiacc.torch")


def key() -> str:
    """What a module is for, and works with alone."""
    there = all(each.exists() for each in _SOURCES)
    source = hashlib.sha256(b"".join(each.read_bytes() for each in _SOURCES)).hexdigest()[:16] if there else "unknown"
    return (f"torch {torch.__version__}, C++ ABI {int(torch._C._GLIBCXX_USE_CXX11_ABI)}, Python {sysconfig.get_config_var('SOABI')}, "
            f"aiacc {__version__}, source {source}")


def place() -> pathlib.Path:
    """Of the module that aiacc.torch.build makes for this user."""
    caches = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(caches, "aiacc", f"torch-shim-{hashlib.sha256(key().encode()).hexdigest()[:16]}.so")


def _reason_against(file: pathlib.Path) -> Optional[str]:
    """Reads the file only: a module of another torch may crash when it is loaded."""
    try:
        content = file.read_bytes()
        owner = file.stat().st_uid
    except OSError as error:
        return str(error)
    if owner not in (0, os.geteuid()):
        return f"it belongs to user {owner}, and not to this one or root"
    found = content.find(_MARK)
    if found < 0:
        return "it is none"
    made_for = content[found + len(_MARK):content.index(b"\0", found)].decode(errors="replace")
    return None if made_for == key() else f"it is for {made_for}, and this is {key()}"


def _file() -> Optional[pathlib.Path]:
    chosen = os.environ.get("AIACC_TORCH_SHIM") or "1"
    if chosen == "0":
        return None
    if chosen == "1":
        try:
            made = place()
        except RuntimeError:  # this user has no home
            return None
        if not os.path.exists(made):  # nor where this user may not look
            _log.info("torch.distributed's back end aiacc runs in Python alone: `python -m aiacc.torch.build` compiles a part of it")
            return None
    else:
        made = pathlib.Path(chosen)
    reason = _reason_against(made)
    if reason is None:
        return made
    (warnings.warn if chosen != "1" else _log.info)(f"the compiled part of aiacc.torch in {made} is not used: {reason}")
    return None


def check_types(made: Any) -> None:
    """Every call would be a TypeError."""
    if "c10d::" in made.allreduce.__doc__:  # pybind11 has a name of Python for what it knows
        raise ImportError("its pybind11 and torch's do not know each other's types, as two compilers made them")


def _failure_of(status: int, sentence: str, rank: int) -> Exception:
    from aiacc.torch.work import failure
    plain = _CLASSES.get(status, Error)(sentence)
    plain.status, plain.rank = status, rank
    return failure(plain)


@functools.lru_cache(None)
def module() -> Optional[Any]:
    """Loaded when the first group is made."""
    file = _file()
    if file is None:
        return None
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(file))
    spec = importlib.util.spec_from_loader(NAME, loader)
    assert spec is not None
    try:
        made = importlib.util.module_from_spec(spec)
        loader.exec_module(made)
        check_types(made)
        made.bind({name: c.cast(getattr(library(), f"aiacc_{name}"), c.c_void_p).value for name in _CALLS}, _failure_of)
    except (ImportError, KeyError) as error:
        warnings.warn(f"the compiled part of aiacc.torch in {file} is not used: {error}")
        return None
    _loaded.append(made)
    return made


_loaded: List[Any] = []


# It runs after finalize, which ends the operations, if this was imported before init. Without finalize they do not end, and a rank that
# fails is not to wait for them.
@atexit.register
def _end_threads() -> None:
    for made in _loaded:
        made.end_threads(leaves_in_order())


def _asking_first(quick: Callable[..., Any], types: Tuple[type, ...], options: str, method: Callable[..., Any]) -> Callable[..., Any]:
    last: Any = getattr(_C, options)() if options else 0  # the tag
    kinds = (*types, type(last))

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if len(keywords) <= ("opts" in keywords) and self._group is not None and self._coalesced is None and not self._timeout_ms \
                and not is_watched():
            given = (*arguments, *keywords.values())
            if len(given) == len(types):
                given = (*given, last)
            # Looked at here, as the text of a TypeError has the numbers of all tensors, which takes long.
            if len(given) == len(kinds) and all(map(isinstance, given, kinds)):
                work = quick(self._group.handle, self._size, *given)
                if work is not None:
                    return work
        return method(self, *arguments, **keywords)
    functools.update_wrapper(call, method)
    return never_compiled(call)


@functools.lru_cache(None)
def with_short_ways(group: type) -> type:
    """The class itself, or one of its name that asks the compiled part first."""
    compiled = module()
    if compiled is None:
        return group
    methods: Dict[str, Any] = {name: _asking_first(getattr(compiled, quick), types, options, getattr(group, name))
                               for name, (quick, types, options) in _METHODS.items()}
    return type(group.__name__, (group,), {**methods, "__doc__": group.__doc__, "__module__": group.__module__})
