"""The module compression of aiacc.mxnet itself: what is set there counts."""
import sys

import aiacc.mxnet.compression

sys.modules[__name__] = aiacc.mxnet.compression
