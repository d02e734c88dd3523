"""aiacc.tensorflow.keras, by AIACC-Training's name."""
import aiacc.tensorflow.keras as _module
from aiacc.tensorflow.keras import *  # noqa: F401,F403
from aiacc.tensorflow.keras import __all__  # noqa: F401


def __getattr__(name):
    return getattr(_module, name)
