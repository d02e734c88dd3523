"""The module mpi_ops of aiacc.mxnet itself: what is set there counts."""
import sys

import aiacc.mxnet.mpi_ops

sys.modules[__name__] = aiacc.mxnet.mpi_ops
