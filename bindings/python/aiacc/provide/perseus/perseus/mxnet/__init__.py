"""aiacc.mxnet, by AIACC-Training's name; MXNet gets the operators and layers that its patched version had."""
import aiacc.mxnet as _module
from aiacc.mxnet import *  # noqa: F401,F403
from aiacc.mxnet import __all__, __version__  # noqa: F401
from aiacc.mxnet.perseus import install as _install

_install()


def __getattr__(name):
    return getattr(_module, name)
