"""The module functions of aiacc.mxnet itself: what is set there counts."""
import sys

import aiacc.mxnet.functions

sys.modules[__name__] = aiacc.mxnet.functions
