"""aiacc.torch, by AIACC-Training's name."""
import aiacc.torch as _module
from aiacc.torch import *  # noqa: F401,F403
from aiacc.torch import __all__, __version__  # noqa: F401


def __getattr__(name):
    return getattr(_module, name)
