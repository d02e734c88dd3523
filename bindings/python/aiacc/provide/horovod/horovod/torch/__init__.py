"""aiacc.torch, by Horovod's name."""
import aiacc.torch as _module
from aiacc.torch import *  # noqa: F401,F403
from aiacc.torch import __all__  # noqa: F401
from horovod import __version__  # noqa: F401
from horovod.torch import compression, elastic, functions, mpi_ops, optimizer, sync_batch_norm  # noqa: F401


def __getattr__(name):
    return getattr(_module, name)
