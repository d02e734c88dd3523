"""Servers of Debian packages that tests run and never install, as their post-install steps would start services on the machine."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

import namespace_hosts


def unpacked(name, packages, program):
    """(folder below which `program` is, None), or (None, why there is none): / where it is installed, else a folder of the build."""
    if pathlib.Path("/", program).exists():
        return pathlib.Path("/"), None
    root = pathlib.Path(os.environ["AIACC_BUILD"], name)
    if (root / program).exists():
        return root, None
    fetched_to = root.with_name(f"{name}-packages")
    shutil.rmtree(fetched_to, ignore_errors=True)  # of a run that was ended
    fetched_to.mkdir(parents=True)
    try:
        fetched = subprocess.run(["apt-get", "download", *packages], cwd=fetched_to, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"the package {packages[0]} cannot be fetched: {error}"
    if fetched.returncode != 0:
        return None, f"the package {packages[0]} cannot be fetched: {fetched.stderr.strip()}"
    unpacking = root.with_name(f"{name}-{os.getpid()}")
    for package in fetched_to.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, unpacking], check=True)
    shutil.rmtree(fetched_to)
    unpacking.rename(root)
    return root, None


def library_path(root):
    """LD_LIBRARY_PATH of what is unpacked there."""
    own = [] if root == pathlib.Path("/") else root.glob("**/lib*.so*")
    return ":".join(sorted({str(library.parent) for library in own}))


@contextlib.contextmanager
def running(name, unpacked, server):
    """`server(lab, folder, root)` on three hosts of namespaces, with what `unpacked()` has found; without, a test is skipped."""
    root, reason = None, namespace_hosts.unavailable() or (None if os.geteuid() == 0 else f"{name} needs root")
    if not reason:
        root, reason = unpacked()
    if reason:
        pytest.skip(str(reason))
    with tempfile.TemporaryDirectory(prefix=f"aiacc-{name}-") as folder, namespace_hosts.Hosts(3) as lab:
        with server(lab, pathlib.Path(folder), root) as hosts:
            yield hosts
