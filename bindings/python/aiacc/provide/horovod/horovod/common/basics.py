"""HorovodBasics: init, rank, size and the like as methods."""
from aiacc._horovod import basics as _basics
from aiacc._horovod import operations as _ops


class HorovodBasics:
    """Horovod's arguments, the path of its library, mean nothing here."""

    Average, Sum, Adasum, Min, Max, Product = _ops.Average, _ops.Sum, _ops.Adasum, _ops.Min, _ops.Max, _ops.Product

    def __init__(self, *_):
        pass

    def __getattr__(self, name):
        return getattr(_basics, name)
