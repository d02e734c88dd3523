"""The module compression of aiacc.tensorflow itself: what is set there counts."""
import sys

import aiacc.tensorflow.compression

sys.modules[__name__] = aiacc.tensorflow.compression
