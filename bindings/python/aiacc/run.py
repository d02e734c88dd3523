"""`aiaccrun` of a pip installation, and `python -m aiacc.run`: that of the wheel, else the one beside the library that pkg-config knows, else
PATH's. `aiacc-info`, `aiacc-perf` and `aiacc-tune` likewise."""
from __future__ import annotations

import os
import pathlib
import shutil
import sys
from typing import List, Optional

from aiacc._library import _pkg_config


def _is_ours(path: str) -> bool:
    """Whether it is a script that pip made of this package, which runs this module."""
    with open(path, "rb") as file:
        start = file.read(1024)
    return start.startswith(b"#!") and b"aiacc.run" in start


def _on_path(name: str) -> Optional[str]:
    for folder in os.get_exec_path():
        found = shutil.which(name, path=folder) if folder else None
        if found and not _is_ours(found):
            return found
    return None


def program(name: str = "aiaccrun") -> Optional[str]:
    own = pathlib.Path(__file__).with_name("_native") / "bin" / name
    if own.exists():
        return str(own)
    if folder := _pkg_config("bindir"):
        beside = pathlib.Path(folder) / name
        if beside.exists() and not _is_ours(str(beside)):
            return str(beside)
    return _on_path(name)


def main(arguments: Optional[List[str]] = None, name: str = "aiaccrun") -> int:
    found = program(name)
    if found is None:
        print(f"aiacc.run: {name} is not found: install aiacc (make install), or add the folder of {name} to PATH", file=sys.stderr)
        return 127
    os.execv(found, [found, *(sys.argv[1:] if arguments is None else arguments)])


def info() -> int:
    return main(name="aiacc-info")


def perf() -> int:
    return main(name="aiacc-perf")


def tune() -> int:
    return main(name="aiacc-tune")


if __name__ == "__main__":
    sys.exit(main())
