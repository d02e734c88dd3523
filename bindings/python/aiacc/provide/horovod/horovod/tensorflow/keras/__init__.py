"""aiacc.tensorflow.keras, by Horovod's name."""
import aiacc.tensorflow.keras as _module
from aiacc.tensorflow.keras import *  # noqa: F401,F403
from aiacc.tensorflow.keras import __all__  # noqa: F401
from horovod import __version__  # noqa: F401
from horovod.tensorflow.keras import callbacks, elastic  # noqa: F401


def __getattr__(name):
    return getattr(_module, name)
