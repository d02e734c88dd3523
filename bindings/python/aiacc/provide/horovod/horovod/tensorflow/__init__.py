"""aiacc.tensorflow, by Horovod's name."""
import aiacc.tensorflow as _module
from aiacc.tensorflow import *  # noqa: F401,F403
from aiacc.tensorflow import __all__  # noqa: F401
from horovod import __version__  # noqa: F401
from horovod.tensorflow import compression, elastic, functions, mpi_ops, sync_batch_norm  # noqa: F401


def __getattr__(name):
    return getattr(_module, name)
