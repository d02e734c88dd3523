"""Ranks that only serve the KVStores of a job (AIACC_KV_SERVERS): the last ones.

They do not come back from the creation of the first store: they serve until the program of rank 0 ends, as MXNet's servers do until
their job ends. What all ranks of a store do together they learn from rank 0, over a group of the two, so that a server that is lost
ends nothing of the others. Rank 0 waits until each has heard it.
"""
from __future__ import annotations

import itertools
import os
import pickle
import struct
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import aiacc
from aiacc._horovod import basics, process_sets
from aiacc._horovod.process_sets import ProcessSet
from aiacc.groups import Group
from aiacc.runtime import go_on_without

Handle = Callable[[str, int, Tuple[Any, ...]], None]
_QUIET_S = 20.0  # below the time after which a call that waits is reported (AIACC_LATE_AFTER)


def number(name: str, otherwise: int) -> int:
    """A variable that aiacc.init has checked."""
    return int(os.environ.get(name) or otherwise)


class Roles:
    """Who serves and who works, and rank 0's word to the servers."""

    def __init__(self, servers: int) -> None:
        size = basics.size()
        self.count = servers
        self.workers, self.servers = list(range(size - servers)), list(range(size - servers, size))
        self.serves = basics.rank() in self.servers
        self._links: Dict[int, Group] = {}
        self._stores = itertools.count()
        self._last = 0.0
        self.process_set = self._set_of_workers() if servers else process_sets.global_process_set
        for server in self.servers:
            if basics.rank() in (0, server):
                self._links[server] = process_sets._parent.create([0, server], name=f"KVStore commands to rank {server}", timeout=float("inf"))
        if self._links and not self.serves:
            basics._before_shutdown.append(self._end)

    def _set_of_workers(self) -> ProcessSet:
        found = [one for one in process_sets._registered if one.ranks == self.workers]
        return found[0] if found else process_sets.add_process_set(ProcessSet(self.workers))

    def next_store(self) -> int:
        return next(self._stores)

    def forgive_losses(self) -> None:
        """Of servers whose values have replicas: the program goes on, and leaving the job says no more of them."""
        for server in self.servers:
            go_on_without(server)

    def tell(self, what: str, store: int, *details: Any) -> None:
        """Rank 0, before it does the same: all servers that are left have heard it."""
        if not self._links:
            return
        message = pickle.dumps((what, store, details))
        for server, link in list(self._links.items()):
            try:
                link.send(bytearray(struct.pack("<q", len(message))), 1)
                link.send(bytearray(message), 1)
                link.recv(bytearray(1), 1)
            except aiacc.PeerFailed:  # what it had is with its replica, or calls on it fail
                del self._links[server]
        self._last = time.monotonic()

    def keep_awake(self) -> None:
        """So that no server's wait for the next word looks like a job that stands still."""
        if self._links and time.monotonic() > self._last + _QUIET_S:
            self.tell("nothing", 0)

    def _end(self) -> None:
        self.tell("end", 0)
        self._links = {}

    def serve(self, handle: Handle) -> None:
        """On a server: does not return."""
        (link,) = self._links.values()
        while True:
            try:
                length = bytearray(8)
                link.recv(length, 0)
                message = bytearray(struct.unpack("<q", length)[0])
                link.recv(message, 0)
                what, store, details = pickle.loads(message)
                link.send(bytearray(1), 0)
            except aiacc.PeerFailed:  # there is nobody left to serve, or only until they end: leaving the job waits for them
                what = "end"
            if what == "end":
                sys.exit(0)
            if what != "nothing":
                handle(what, store, details)


_roles: Optional[Roles] = None
_made_at: List[Any] = []  # the parent of the groups: another one after each init


def _present() -> Optional[Roles]:
    return _roles if _made_at == [process_sets._parent] else None


def checked(servers: Optional[int]) -> int:
    """How many ranks only serve: what is given, or what stores have already, or what the environment says."""
    present = _present()
    if present is not None and servers is not None and servers != present.count:
        raise ValueError(f"servers is {servers}, and a store of this job has {present.count}: all stores have the same ranks as servers")
    if servers is None:
        servers = present.count if present is not None else number("AIACC_KV_SERVERS", 0)
    if not 0 <= servers < basics.size():
        raise ValueError(f"servers is {servers}, and the job has {basics.size()} ranks: one at least is left to work (AIACC_KV_SERVERS)")
    return servers


def roles(servers: int) -> Roles:
    """The same for all stores between init and shutdown."""
    global _roles
    present = _present()
    if present is None:
        present = _roles = Roles(servers)
        _made_at[:] = [process_sets._parent]
    return present
