"""Loaders of data whose next batches a thread makes (horovod.data)."""
from __future__ import annotations

import queue
import threading
from typing import Any, Iterator, Optional


class BaseDataLoader:
    """Subclasses have `__len__`, the number of batches, and `_iterate`, which makes those of an epoch."""

    def __len__(self) -> int:
        raise NotImplementedError

    def _iterate(self) -> Iterator[Any]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """For a trainer that wants batches in another form."""
        return batch


class _Epoch:
    """A thread that makes the batches of one epoch, so many ahead."""
    _END = object()

    def __init__(self, batches: Iterator[Any], ahead: int) -> None:
        self._made: queue.Queue[Any] = queue.Queue(ahead)
        self._closed = False
        self._batches = batches
        self._thread = threading.Thread(target=self._run, name="aiacc data loader", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for batch in self._batches:
                self._put((batch, None))
                if self._closed:
                    return
            self._put((self._END, None))
        except BaseException as error:  # noqa: BLE001: raised where the batch is wanted
            self._put((self._END, error))

    def _put(self, made: Any) -> None:
        while not self._closed:
            try:
                return self._made.put(made, timeout=0.1)
            except queue.Full:
                pass

    def __iter__(self) -> Iterator[Any]:
        while not self._closed:
            try:
                batch, error = self._made.get(timeout=0.1)
            except queue.Empty:
                continue
            if error is not None:
                raise error
            if batch is self._END:
                return
            yield batch

    def close(self) -> None:
        self._closed = True
        self._thread.join()


class AsyncDataLoaderMixin:
    """In front of a BaseDataLoader: `async_loader_queue_size` batches are made ahead by a thread; 0: by the program, when it wants them.
    `debug_data_loader` has no effect."""

    def __init__(self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any) -> None:
        self.async_loader_queue_size, self.debug_data_loader = async_loader_queue_size, debug_data_loader
        self._epoch: Optional[_Epoch] = None
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """Ends the thread; an iteration that goes on has no further batch."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            epoch.close()

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        self.close_async_loader()
        epoch = self._epoch = _Epoch(self._iterate(), self.async_loader_queue_size)  # type: ignore[attr-defined]
        for batch in epoch:
            yield self._process_batch(batch)  # type: ignore[attr-defined]


__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
