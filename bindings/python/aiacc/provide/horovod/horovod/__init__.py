"""The package horovod of `aiaccrun --provide horovod`: Horovod's API for PyTorch, on aiacc."""
import pathlib
import runpy

runpy.run_path(str(pathlib.Path(__file__).resolve().parents[2] / "load_aiacc.py"))

__version__ = "0.28.1"  # whose API it has; scripts compare it


def run(*_, **__):
    """Horovod starts ranks from a running program; aiacc starts programs."""
    raise NotImplementedError("horovod.run: aiacc starts no functions; put the function into a program, and start it with aiaccrun -np N")
