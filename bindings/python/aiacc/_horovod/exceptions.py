"""The exceptions that Horovod's users catch (horovod.common.exceptions)."""
from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """An operation failed after it had begun: ranks that disagree, a lost rank, a deadline, shutdown."""


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts came or went, as a state was told by on_hosts_updated. `skip_sync`: they only went, so the states of ranks are equal."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync
