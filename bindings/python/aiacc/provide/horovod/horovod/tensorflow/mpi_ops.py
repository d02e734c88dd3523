"""The module mpi_ops of aiacc.tensorflow itself: what is set there counts."""
import sys

import aiacc.tensorflow.mpi_ops

sys.modules[__name__] = aiacc.tensorflow.mpi_ops
