"""aiacc.torch.elastic, by Horovod's name."""
from aiacc.torch.elastic import *  # noqa: F401,F403
from aiacc.torch.elastic import __all__  # noqa: F401
