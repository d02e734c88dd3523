"""The collectives of the C ABI through aiaccrun: a smaller matrix than bindings/c/matrix_test.cc's, on one host and over hosts
that share nothing but a network."""
import atexit
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from launcher_support import STAGE, Job, sanitizer
from runtime_process_test import said

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
CASES = 13 * 6


@pytest.fixture(scope="module")
def surface():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aiacc-surface-"))
    atexit.register(shutil.rmtree, folder, True)
    folder.chmod(0o755)
    subprocess.run(["c++", "-std=c++20", "-O1", f"-I{SOURCE}", SOURCE / "tests/programs/surface.cc", SOURCE / "base/data/dtype.cc",
                    "-o", folder / "surface", f"-L{STAGE}/lib", "-laiacc", f"-Wl,-rpath,{STAGE}/lib", *sanitizer()], check=True)
    return folder / "surface"


def test_on_one_host(surface):
    code, out, err = Job(["-np", 3, surface, 0, 2 * CASES]).finish()
    assert (code, out, said(err)) == (0, "", "")


@pytest.mark.parametrize("where, order", [("h0:1,h1:1,h2:1", "slot"), ("h0:2,h1:2", "slot"), ("h0:2,h1:1,h2:2", "node")])
def test_over_hosts(surface, hosts, where, order):
    code, out, err = Job(["--launch-agent", hosts.enter, "-H", where, "--map-by", order, surface, 0, CASES]).finish()
    assert (code, out, said(err)) == (0, "", "")
