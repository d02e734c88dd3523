"""`python -m aiacc.torch.build [FILE]` compiles the optional part of the back end of torch.distributed, for this torch.

It needs a C++ compiler (CXX, or c++) and the headers of torch and Python. Where FILE is not given the module goes where the back end finds
it, in the cache of this user, and is used from then on; else AIACC_TORCH_SHIM=FILE uses it.
"""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
from typing import List

import torch

from aiacc.torch import _shim

_HEADER = "torch/csrc/distributed/c10d/Work.hpp"


def _command(output: str) -> List[str]:
    root = pathlib.Path(torch.__file__).parent
    places = [root / "include", pathlib.Path("/usr/include")]  # of pip's torch, and of Debian's
    headers = next((one for one in places if (one / _HEADER).exists()), None)
    if headers is None:
        sys.exit(f"aiacc.torch.build: torch {torch.__version__} has no headers here ({_HEADER} under {places[0]} or {places[1]}); Debian's are in "
                 "libtorch-dev, with pybind11-dev. The back end works without its compiled part")
    python = sysconfig.get_path("include")
    if not pathlib.Path(python, "Python.h").exists():
        sys.exit(f"aiacc.torch.build: there is no {python}/Python.h: install python3-dev. The back end works without its compiled part")
    first = torch.__version__.startswith("1.")
    # By these texts modules of pybind11 before 3 know each other's types; without them they are those of this compiler, which is not torch's.
    pybind = {name: getattr(torch._C, f"_{name}", None) for name in ("PYBIND11_COMPILER_TYPE", "PYBIND11_STDLIB", "PYBIND11_BUILD_ABI")}
    return [os.environ.get("CXX", "c++"), "-O1", f"-std=c++{17 if first else 20}", "-fPIC", "-shared", "-w", "-fvisibility=hidden",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f'-DAIACC_SHIM_KEY="{_shim.key()}"',
            *(f'-D{name}="{text}"' for name, text in pybind.items() if text is not None),
            *(["-DAIACC_SHIM_TORCH_1"] if first else []), f"-I{headers}", f"-I{headers}/torch/csrc/api/include", f"-I{python}",
            str(_shim.SOURCE), "-o", output, f"-L{root}/lib", "-ltorch_python", "-ltorch_cpu", "-lc10"]


def build(file: pathlib.Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        made = os.path.join(folder, "shim.so")
        command = _command(made)
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL)
        except OSError as error:
            sys.exit(f"aiacc.torch.build: there is no C++ compiler ({error}): install g++, or let CXX name one. The back end works without its "
                     "compiled part")
        if done.returncode != 0:
            sys.exit(f"aiacc.torch.build: {command[0]} failed with status {done.returncode}. The back end works without its compiled part")
        os.replace(made, file)


def main(words: List[str]) -> None:
    if len(words) > 1 or any(word.startswith("-") for word in words):
        print(__doc__.strip())
        sys.exit(0 if words in (["-h"], ["--help"]) else 2)
    file = pathlib.Path(words[0]) if words else _shim.place()
    build(file)
    print(f"{file}: for {_shim.key()}")


if __name__ == "__main__":
    main(sys.argv[1:])
