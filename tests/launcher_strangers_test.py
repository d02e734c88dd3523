"""Other users of the machine: they know the name of an agent's local socket, and change nothing of the job's result."""
import os
import pathlib
import shutil
import subprocess

import pytest

from launcher_hosts_support import FOLDER, script
from launcher_support import Job, closing_line, compiled

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to be two users")

# Takes each local socket of a user that begins with aiacc-, as another user, as often as it can; holds all until its input ends.
CROWD = script("crowd", """import os, resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
os.setgroups([]); os.setgid(65533); os.setuid(65533)
held = []
for name in sys.argv[1:]:
    for _ in range(600):
        caller = socket.socket(socket.AF_UNIX)
        caller.connect("\\0" + name)
        held.append(caller)
print(len(held), flush=True)
sys.stdin.read()
""", "/usr/bin/python3")


def test_who_opens_many_connections_to_an_agent():
    """More than the agent has descriptors, before the ranks say hello."""
    go = pathlib.Path(FOLDER, "go")
    rank = compiled("tests/programs/rank.c")
    wait = f"test $AIACC_RANK = 0 && echo $AIACC_AGENT; until test -e {go}; do sleep 0.02; done; exec {rank} loop 1"
    job = Job(["-np", 2, "sh", "-c", wait], user="ordinary", before=["prlimit", "--nofile=256:256", "--"])
    name = job.process.stdout.readline().decode().strip().removeprefix("local:")
    crowd = subprocess.Popen([CROWD, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert crowd.stdout.readline() == "600\n"
        go.touch()
        code, out, err = job.finish()
    finally:
        crowd.communicate("", timeout=60)
    assert (code, out) == (0, ""), err
    assert "all ranks have ended; 600 strangers were turned away on" in closing_line(err), err
