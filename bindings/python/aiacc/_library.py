"""Finds and loads libaiacc, when it is first needed."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
import pathlib
import subprocess
from typing import Any, Iterator, Tuple

from aiacc._version import __version__

_NAME = "libaiacc.so.0"
_library: Any = None


def _pkg_config(name: str = "libdir") -> str:
    try:
        asked = subprocess.run(["pkg-config", f"--variable={name}", "aiacc"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def _places() -> Iterator[Tuple[str, str]]:
    """(how it was found, path or name), best first. What AIACC_LIBRARY names is the only one then."""
    if named := os.environ.get("AIACC_LIBRARY"):
        yield "AIACC_LIBRARY", named
        return
    own = pathlib.Path(__file__).with_name("_native") / "lib" / _NAME
    if own.exists():  # a wheel
        yield "the package's own", str(own)
        return
    # PREFIX/share/aiacc/python/aiacc, of `make install`
    here = pathlib.Path(__file__).resolve()
    if here.parts[-5:-1] == ("share", "aiacc", "python", "aiacc"):
        for beside in (here.parents[4] / folder / _NAME for folder in ("lib", "lib64")):
            if beside.exists():
                yield "beside the package", str(beside)
    if folder := _pkg_config():
        yield "pkg-config aiacc", os.path.join(folder, _NAME)
    yield "the loader's path", _NAME


def _load() -> Any:
    failures = []
    for how, path in _places():
        try:
            library = ctypes.CDLL(path)
            library.aiacc_version.restype = ctypes.c_char_p
            found = library.aiacc_version().decode()
        except (OSError, AttributeError) as error:
            failures.append(f"{how}: {error}")
            continue
        # Before 1.0.0 a minor version may change the ABI.
        if found.split(".")[:2] != __version__.split(".")[:2]:
            raise ImportError(f"{path} ({how}) is libaiacc {found}, and this Python package is for {__version__}: install both from one release")
        return library
    raise ImportError(f"libaiacc is not found ({'; '.join(failures)}): install aiacc (make install, then ldconfig or PKG_CONFIG_PATH), or let "
                      "AIACC_LIBRARY name libaiacc.so")


def library() -> Any:
    """The library with its functions' types; loaded once."""
    global _library
    if _library is None:
        from aiacc import _abi
        loaded = _load()
        try:
            _abi.declare(loaded)
        except AttributeError as error:
            raise ImportError(f"{loaded._name} is older than this Python package ({error}): install both from one release") from None
        _library = loaded
    return _library
