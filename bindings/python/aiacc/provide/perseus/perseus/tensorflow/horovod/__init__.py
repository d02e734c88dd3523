"""aiacc.tensorflow, by AIACC-Training's name."""
import aiacc.tensorflow as _module
from aiacc.tensorflow import *  # noqa: F401,F403
from aiacc.tensorflow import __all__, __version__  # noqa: F401


def __getattr__(name):
    return getattr(_module, name)
