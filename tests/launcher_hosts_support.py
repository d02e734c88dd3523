"""Hosts for the launcher's tests. Pretended ones need no privilege: a command for --launch-agent that runs the agent on this
machine, whatever the name of the host. Real ones, with namespaces of their own, are namespace_hosts.py's."""
import atexit
import os
import pathlib
import shutil
import tempfile

from launcher_support import AIACCRUN

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="aiacc-stage-"))
atexit.register(shutil.rmtree, FOLDER, True)
FOLDER.chmod(0o755)


def script(name, body, interpreter="/bin/sh"):
    """An executable of every user; returns its path."""
    path = FOLDER / name
    path.write_text(f"#!{interpreter}\n{body}")
    path.chmod(0o755)
    return str(path)


# The program tests/programs/say_hello.py where an ordinary user may read it too: how to start it.
HELLO = ["/usr/bin/python3", str(FOLDER / "say_hello.py")]
shutil.copyfile(pathlib.Path(os.environ["AIACC_SOURCE"], "tests/programs/say_hello.py"), HELLO[1])
os.chmod(HELLO[1], 0o755)
# What stands before one of the commands below: they lead to one machine, and it would be seen.
PRETEND = ["--separate-hosts", "--launch-agent"]
# ENTER HOST COMMAND...
ENTER = script("enter", 'host=$1; shift; exec "$@"\n')
# As ssh does: a process of its own stands between aiaccrun's pipes and the agent's.
RELAY = script("relay", """import os, subprocess, sys, threading
process = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
def pass_on(source, to):
    try:
        while data := os.read(source, 65536):
            while data:
                data = data[os.write(to, data):]
    except OSError:
        pass
def ours():
    pass_on(0, process.stdin.fileno())
    process.stdin.close()
threading.Thread(target=ours, daemon=True).start()
pass_on(process.stdout.fileno(), 1)
os._exit(process.wait() & 255)
""", "/usr/bin/python3")
# As a login does: an environment of its own.
LOGIN = script("login", 'shift; exec env -i PATH=/usr/bin:/bin HOME=/login LOGIN=yes ${TEST_JOB_MARK:+TEST_JOB_MARK="$TEST_JOB_MARK"} "$@"\n')
REMOTE = [str(AIACCRUN), "--remote-keeper"]
