"""Other users of the machine: they know the name of an agent's local socket, and change nothing of the job's result."""
import os
import pathlib
import shutil
import subprocess

import pytest

from launcher_hosts_support import FOLDER, script
from launcher_support import Job, closing_line, compiled, open_files

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


HOLDER = script("holder", """import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0" + sys.argv[1])
listener.listen()
print(flush=True)
caller, _ = listener.accept()
caller.settimeout(50)
print(len(caller.recv(1000)), flush=True)
""", "/usr/bin/python3")


def test_a_rank_tells_nothing_to_another_user_who_has_taken_the_name_of_its_agent():
    """A name of the abstract name space is free again when its agent has ended."""
    name = f"aiacc-{os.urandom(8).hex()}"
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    holder = subprocess.Popen([*other, HOLDER, name], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "\n"
        environment = {**os.environ, "AIACC_AGENT": f"local:{name}", "AIACC_RANK": "0", "AIACC_SIZE": "2", "AIACC_LOCAL_SIZE": "2"}
        rank = subprocess.run([compiled("tests/programs/rank.c"), "barrier"], env=environment, capture_output=True, text=True, timeout=60)
        heard = holder.communicate(timeout=60)[0]
    finally:
        holder.kill()
        holder.wait()
    assert rank.returncode != 0
    assert f"AIACC_AGENT=local:{name}: it belongs to user 65534, and this process to user 0" in rank.stderr, rank.stderr
    assert heard == "0\n", "not even a hello"


def local_listeners(pids):
    """Names of the local sockets at which processes listen."""
    inodes = open_files(pids)
    lines = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
    return [words[7] for words in lines if len(words) > 7 and words[3] == "00010000" and f"socket:[{words[6]}]" in inodes]


def test_an_agent_listens_for_its_ranks_only_once_the_job_has_begun():
    job = Job(["-np", 1, "sh", "-c", "echo $AIACC_AGENT; read line"], stdin=subprocess.PIPE)
    agent = job.process.stdout.readline().decode().strip().removeprefix("local:")
    listeners = local_listeners(job.processes())
    job.process.stdin.close()
    job.process.stdin = None
    job.finish()
    assert listeners == [f"@{agent}"]


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
    assert "all ranks have ended; 600 unauthenticated peers were turned away on" in closing_line(err), err
