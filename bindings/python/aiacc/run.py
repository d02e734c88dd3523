"""`python -m aiacc.run` is aiaccrun: that of the wheel, else the one beside the library that pkg-config knows, else PATH's."""
from __future__ import annotations

import os
import pathlib
import shutil
import sys
from typing import List, Optional

from aiacc._library import _pkg_config


def program() -> Optional[str]:
    own = pathlib.Path(__file__).with_name("_native") / "bin" / "aiaccrun"
    if own.exists():
        return str(own)
    if folder := _pkg_config("bindir"):
        beside = pathlib.Path(folder) / "aiaccrun"
        if beside.exists():
            return str(beside)
    return shutil.which("aiaccrun")


def main(arguments: Optional[List[str]] = None) -> int:
    found = program()
    if found is None:
        print("aiacc.run: aiaccrun is not found: install aiacc (make install), or add the folder of aiaccrun to PATH", file=sys.stderr)
        return 127
    os.execv(found, [found, *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
