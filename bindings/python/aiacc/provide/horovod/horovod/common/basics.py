"""HorovodBasics: init, rank, size and the like as methods."""
from aiacc.torch import basics as _basics
from aiacc.torch import mpi_ops as _ops


class HorovodBasics:
    """Horovod's arguments, the path of its library, mean nothing here."""

    Average, Sum, Adasum, Min, Max, Product = _ops.Average, _ops.Sum, _ops.Adasum, _ops.Min, _ops.Max, _ops.Product

    def __init__(self, *_):
        pass

    def __getattr__(self, name):
        return getattr(_basics, name)
