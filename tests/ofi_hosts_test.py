"""Real ranks whose messages between hosts go over libfabric (AIACC_TRANSPORT=ofi)."""
from active_hosts_support import OverALibrary
from surface_hosts_test import surface  # noqa: F401  (a fixture)


class TestOfi(OverALibrary):
    may_crash = "libfabric 1.17 crashed where it was to close a connection that was reset (docs/status.md)"
    transport = "ofi"
    settings = ("AIACC_OFI_PROVIDER=tcp;ofi_rxm",)
    description = r"libfabric [\d.]+: tcp;ofi_rxm/"
    bad_setting = "AIACC_OFI_PROVIDER=none-of-these"
    library = "libfabric"
