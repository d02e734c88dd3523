"""The package horovod of `aiaccrun --provide horovod`: Horovod's API for PyTorch, TensorFlow and MXNet, on aiacc."""
import pathlib
import runpy

runpy.run_path(str(pathlib.Path(__file__).resolve().parents[2] / "load_aiacc.py"))

from aiacc._horovod.launch import run  # noqa: E402

__version__ = "0.28.1"  # whose API it has; scripts compare it


__all__ = ["__version__", "run"]
