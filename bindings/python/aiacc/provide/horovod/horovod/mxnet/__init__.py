"""aiacc.mxnet, by Horovod's name."""
import aiacc.mxnet as _module
from aiacc.mxnet import *  # noqa: F401,F403
from aiacc.mxnet import __all__  # noqa: F401
from horovod import __version__  # noqa: F401
from horovod.mxnet import compression, functions, mpi_ops  # noqa: F401


def __getattr__(name):
    return getattr(_module, name)
