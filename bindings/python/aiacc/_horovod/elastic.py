"""Elastic training: a function that is run again, from the state last committed, after an error that the job survives."""
from __future__ import annotations

import copy
import enum
import functools
import logging
import queue
import time
from typing import Any, Callable, Dict, Iterable, List, Set

from aiacc._horovod import basics
from aiacc._horovod.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from aiacc.errors import Error
from aiacc.runtime import note_exit

_log = logging.getLogger("aiacc.elastic")


class HostUpdateResult(enum.IntFlag):
    """What on_hosts_updated is told."""
    no_update = 0
    removed = 1
    added = 2
    mixed = 3


class _HostMessages(queue.Queue):  # type: ignore[type-arg]  # Python 3.8 has no Queue[str]
    """What on_hosts_updated was told. Programs look whether there is something before they commit: `hear` asks aiaccrun's agent first."""

    def __init__(self, hear: Callable[[], None]) -> None:
        super().__init__()
        self._hear = hear

    def empty(self) -> bool:
        self._hear()
        return super().empty()


class NotificationManager:
    """Whom it tells that hosts came or went: states while their function runs, and what a program registers."""

    def __init__(self) -> None:
        self._listeners: Set[Any] = set()

    def init(self, *_: Any, **__: Any) -> None:
        """Nothing is set up: a State asks aiaccrun's agent."""

    def register_listener(self, listener: Any) -> None:
        self._listeners.add(listener)

    def remove_listener(self, listener: Any) -> None:
        self._listeners.discard(listener)

    def listeners(self) -> Set[Any]:
        return set(self._listeners)

    def handle_hosts_updated(self, timestamp: int, update_res: int) -> None:
        for listener in self.listeners():
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = NotificationManager()


class State:
    """What the ranks of a job keep in step. `bcast_object` gives rank 0's object to all ranks, `get_rank` this rank."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object, self._rank = bcast_object, get_rank
        self._host_messages = _HostMessages(self._hear)
        self._last_updated_timestamp = 0
        self._told = 0  # what aiaccrun has said, of the present world
        self._reset_callbacks: List[Callable[[], None]] = []
        self._sync_follows = False  # on_reset is called just before sync

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Called after the ranks have met again, before the function is run again: to scale a learning rate, for example."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        self._host_messages = _HostMessages(self._hear)
        self._told = 0
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: int, update_res: int) -> None:
        """Hosts came or went. aiaccrun says so with --host-discovery-script; a program that knows of it may, on rank 0 at least."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """The state that an error goes back to. Collective, as check_host_updates is."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks if rank 0 was told of new or missing hosts since the last call. Collective."""
        before = newest = self._last_updated_timestamp
        what = HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, result = self._host_messages.get()
            if timestamp > newest:
                newest, what = timestamp, what | result
        before, self._last_updated_timestamp, what = self._bcast_object((before, newest, int(what)))
        if self._last_updated_timestamp > before:
            raise HostsUpdatedInterrupt(what == HostUpdateResult.removed)

    def _hear(self) -> None:
        told = basics.hosts_updated()
        new, self._told = told & ~self._told, self._told | told
        if new:
            timestamp = max(time.time_ns(), self._last_updated_timestamp + 1)
            for listener in notification_manager.listeners() | {self}:
                listener.on_hosts_updated(timestamp, new)

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def reset(self) -> None:
        """The ranks have met again; perhaps others than before."""


class ObjectState(State):
    """Attributes that can be pickled: each keyword argument is one."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state: Dict[str, Any] = copy.deepcopy(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)

    def save(self) -> None:
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        self._assign()

    def _assign(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self) -> None:
        if self._saved_state:
            self._saved_state = self._bcast_object({name: getattr(self, name) for name in self._saved_state})
            self._assign()


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """The function, called with a state that is equal on all ranks, and again after each error of the job that it survives. `reset` is
    shutdown and init, in the next world where hosts may change.

    HorovodInternalError: the state goes back to the last commit. HostsUpdatedInterrupt: it stays as it is. New ranks get it from the
    others, also where those need not synchronize. Any other exception is the caller's. An error after which ranks do not meet again (a lost rank without aiaccrun --min-np) leaves as HorovodInternalError. A rank
    that aiaccrun started in the place of a lost one (--max-np) begins with the state of the others."""
    @functools.wraps(func)
    def wrapper(state: State, *arguments: Any, **keywords: Any) -> Any:
        notification_manager.register_listener(state)
        try:
            return run_again_and_again(state, arguments, keywords)
        finally:
            notification_manager.remove_listener(state)

    def run_again_and_again(state: State, arguments: Any, keywords: Any) -> Any:
        again, synchronizes = False, True
        while True:
            if again:
                _meet_again(reset)
            try:
                if again:
                    synchronizes = synchronizes or basics.has_newcomers()
                    state._sync_follows = synchronizes
                    state.on_reset()
                if synchronizes:
                    state.sync()
                return func(state, *arguments, **keywords)
            except HorovodInternalError as error:
                _log.warning("rank %d goes back to the last commit: %s", basics.rank(), error)
                basics.give_up_steps()
                state.restore()
                synchronizes = True
                basics.abandon(str(error))
            except HostsUpdatedInterrupt as interrupt:
                synchronizes = not interrupt.skip_sync
            except SystemExit as leaving:
                note_exit(leaving.code)
                raise
            again = True
    return wrapper


def _meet_again(reset: Callable[[], None]) -> None:
    try:
        reset()
    except Error as failure:
        raise HorovodInternalError(f"this job cannot go on: {failure}") from failure


__all__ = ["HostUpdateResult", "ObjectState", "State", "notification_manager", "run_fn"]
