"""BaseDataLoader and AsyncDataLoaderMixin."""
from aiacc._horovod.data import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
