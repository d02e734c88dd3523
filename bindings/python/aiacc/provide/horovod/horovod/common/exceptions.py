"""Horovod's exceptions. aiacc raises the first."""
from aiacc._horovod.exceptions import HorovodInternalError, HostsUpdatedInterrupt


class HorovodVersionMismatchError(ImportError):
    """A framework of another version than Horovod was built for. Never raised: nothing is built for one."""

    def __init__(self, name, version, installed_version):
        super().__init__(f"{name} {installed_version} is installed, and Horovod was built for {version}")
        self.name, self.version, self.installed_version = name, version, installed_version


__all__ = ["HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt"]
