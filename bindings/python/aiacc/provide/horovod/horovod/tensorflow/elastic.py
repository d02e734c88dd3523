"""The module elastic of aiacc.tensorflow itself: what is set there counts."""
import sys

import aiacc.tensorflow.elastic

sys.modules[__name__] = aiacc.tensorflow.elastic
