"""The module functions of aiacc.tensorflow itself: what is set there counts."""
import sys

import aiacc.tensorflow.functions

sys.modules[__name__] = aiacc.tensorflow.functions
