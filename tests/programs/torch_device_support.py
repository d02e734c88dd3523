"""A device of torch that is not the CPU, where there is no GPU: torch_device.cc, compiled."""
import os
import pathlib
import subprocess
import sys
import tempfile
import types

import torch

SOURCE = pathlib.Path(__file__).with_name("torch_device.cc")


def compile_to(library):
    """For the torch of this interpreter."""
    root = pathlib.Path(torch.__file__).parent
    subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O0", "-fPIC", "-shared", "-w", f"-I{root}/include",
                    f"-I{root}/include/torch/csrc/api/include", SOURCE, "-o", library, f"-L{root}/lib", "-ltorch_cpu", "-lc10"], check=True)


class Stream:
    """All of whose work is done when it is asked for."""
    waits = 0

    def synchronize(self):
        Stream.waits += 1


def board(library):
    """The device, which torch then knows by that name."""
    torch.ops.load_library(library)
    torch.utils.rename_privateuse1_backend("board")
    module = types.ModuleType("torch.board")
    module.is_available = module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.manual_seed_all = module.set_device = lambda _: None
    module.current_stream = lambda _=None: Stream()
    torch._register_device_module("board", module)
    return torch.device("board:0")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=pathlib.Path(sys.argv[1]).parent) as folder:
        compile_to(pathlib.Path(folder, "device.so"))
        os.replace(pathlib.Path(folder, "device.so"), sys.argv[1])
