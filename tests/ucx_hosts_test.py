"""Real ranks whose messages between hosts go over UCX (AIACC_TRANSPORT=ucx)."""
from active_hosts_support import OverALibrary
from surface_hosts_test import surface  # noqa: F401  (a fixture)


class TestUcx(OverALibrary):
    transport = "ucx"
    settings = ("AIACC_UCX_TLS=tcp",)
    description = r"UCX [\d.]+: tcp/"
    bad_setting = "AIACC_UCX_TLS=none-of-these"
    library = "UCX"
