"""What the launcher's process tests share: starting aiaccrun from the installed tree, finding every process of a job by a
mark in its environment, and ordinary users without capabilities.

Times in tests with real processes are asserted at ten times the bound and printed.
"""
import atexit
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid

def reachable(stage):
    """The installed tree where an ordinary user may read it too: a checkout may lie below a folder that is root's alone."""
    if os.geteuid() != 0 or all(folder.stat().st_mode & 0o005 == 0o005 for folder in [stage, *stage.parents]):
        return stage
    copy = tempfile.mkdtemp(prefix="aiacc-stage-")
    atexit.register(shutil.rmtree, copy, True)
    shutil.copytree(stage, copy, dirs_exist_ok=True, symlinks=True)
    os.chmod(copy, 0o755)
    return pathlib.Path(copy)


STAGE = reachable(pathlib.Path(os.environ["AIACC_STAGE"]).resolve())
AIACCRUN = STAGE / "bin" / "aiaccrun"
MARK = "TEST_JOB_MARK"
TOLERANCE = 10
PATIENCE_S = 200  # with a job that hangs
ORDINARY = 65534
SOLITARY = 65533  # of whom no other test has processes: limits on processes count all of a user


def compiled(source):
    """A C program of tests/ on the installed library, where every user may run it."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aiacc-stage-"))
    atexit.register(shutil.rmtree, folder, True)
    folder.chmod(0o755)
    program = folder / pathlib.Path(source).stem
    subprocess.run(["cc", "-std=gnu17", "-Wall", "-Wextra", "-Werror", f"-I{STAGE}/include",
                    pathlib.Path(os.environ["AIACC_SOURCE"], source), "-o", program, f"-L{STAGE}/lib",
                    f"-Wl,-rpath,{STAGE}/lib", "-laiacc", "-lm", *sanitizer()], check=True)
    return program


def sanitizer():
    """A library built with a sanitizer wants its runtime in the program: libtool links none of them to the library."""
    wanted = subprocess.run(["readelf", "--wide", "--dyn-syms", STAGE / "lib/libaiacc.so"], capture_output=True, text=True).stdout
    return [f"-fsanitize={name}" for name, symbol in (("address", "__asan_init"), ("thread", "__tsan_init"), ("undefined", "__ubsan_"))
            if symbol in wanted]


def users():
    """Who runs a test that depends on it: root and an ordinary user where we can, else whoever we are."""
    if os.geteuid() == 0 and shutil.which("setpriv"):
        return ["root", "ordinary"]
    return ["self"]


def as_user(user):
    who = {"ordinary": ORDINARY, "solitary": SOLITARY}.get(user)
    if who is None:
        return []
    return ["setpriv", f"--reuid={who}", f"--regid={who}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
            "--no-new-privs"]


# What aiaccrun says after some seconds, on a slow machine of any job.
SLOW_START = re.compile(r"^aiaccrun: waiting for \d+ of \d+ hosts to come up: [^\n]*\n", re.M)


class Job:
    """One aiaccrun. All that it starts carries its mark."""

    def __init__(self, arguments, user="self", env=None, before=(), **kwargs):
        self.mark = uuid.uuid4().hex
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AIACC_")}
        environment = {**clean, MARK: self.mark, **(env or {})}
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        kwargs.setdefault("cwd", "/")
        self.started = time.monotonic()
        self.process = subprocess.Popen([*as_user(user), *before, str(AIACCRUN), *map(str, arguments)], env=environment,
                                        start_new_session=True, **kwargs)

    def finish(self, timeout=PATIENCE_S):
        """(exit code, stdout, stderr) as text, but for SLOW_START; afterwards nothing of the job may live."""
        code, out, err = self.finish_bytes(timeout)
        return code, out.decode(errors="replace"), SLOW_START.sub("", err.decode(errors="replace"))

    @contextlib.contextmanager
    def killed_after(self, seconds=PATIENCE_S):
        """Kills the job if what is done in this takes longer: a read from it then meets the end."""
        patience = threading.Timer(seconds, self.kill)
        patience.start()
        try:
            yield
        finally:
            patience.cancel()

    def remark(self):
        """The next line on stderr that says more than how slow the machine is, or how few cores it has; "" at the end."""
        with self.killed_after():
            while (line := self.process.stderr.readline().decode()) and ("AR-BUSY" in line or SLOW_START.match(line)):
                pass
        return line

    def said_until(self, pattern):
        """What it says on stderr up to the line in which the pattern is found, or to the end."""
        said = ""
        with self.killed_after():
            while line := self.process.stderr.readline().decode():
                said += line
                if re.search(pattern, line):
                    break
        return said

    def finish_bytes(self, timeout=PATIENCE_S):
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            left = self.processes()
            self.clean()
            raise AssertionError(f"aiaccrun did not end within {timeout} s; there are {left}") from None
        self.took = time.monotonic() - self.started
        left = self.processes()
        self.clean()
        assert not left, f"aiaccrun has returned and these live on: {left}"
        return self.process.returncode, out or b"", err or b""

    def processes(self):
        """{pid: name} of the living processes that carry the mark."""
        found = {}
        wanted = f"{MARK}={self.mark}".encode()
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError):
                if wanted not in pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    continue
                stat = pathlib.Path("/proc", entry, "stat").read_text()
                if stat.rsplit(")", 1)[1].split()[0] not in "ZX":
                    found[int(entry)] = stat.split("(", 1)[1].rsplit(")", 1)[0]
        return found

    def pids(self, name):
        return sorted(pid for pid, found in self.processes().items() if found == name)

    def wait_for(self, condition, what, timeout=PATIENCE_S):
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            value = condition()
            if value:
                return value
            time.sleep(0.01)
        left = self.processes()
        self.clean()
        raise AssertionError(f"waited {timeout} s for {what}; there are {left}")

    def wait_for_pids(self, name, count):
        return self.wait_for(lambda: (lambda pids: pids if len(pids) >= count else None)(self.pids(name)),
                             f"{count} processes named {name}")

    def gone_within(self, bound):
        """Waits until no process of the job lives; returns how long that took, at most ten times the bound."""
        began = time.monotonic()
        self.wait_for(lambda: not self.processes(), "the end of all processes of the job", bound * TOLERANCE)
        took = time.monotonic() - began
        self.clean()
        return took

    def kill(self):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def clean(self):
        """Whatever a failed test leaves must not disturb the next."""
        self.kill()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe and not pipe.closed:
                pipe.close()


def run(*arguments, **kwargs):
    """(exit code, stdout, stderr) of one aiaccrun."""
    return Job(arguments, **kwargs).finish()


def with_longer_limits(attempt, enough, first):
    """What attempt(limit) returned with the first limit, or with longer ones until enough(it): a slow machine needs more time, and a
    fault remains one. What no slow machine explains attempt asserts itself."""
    result = attempt(first)
    for factor in (4, 16):
        if enough(result):
            break
        print(f"again with {factor} times the limit: {result}")
        result = attempt(first * factor)
    return result


def closing_line(stderr):
    lines = [line for line in stderr.splitlines() if line.startswith("aiaccrun: ")]
    return lines[-1] if lines else ""


# What ranks do while somebody is killed.
PROGRAMS = {
    "wait": "sleep 1000 & wait",
    "setsid": "setsid sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & sleep 1000",
    "ignores-term": "trap '' TERM INT HUP; (trap '' TERM; while :; do sleep 1; done) & while :; do sleep 1; done",
}


def state_and_parent(pid):
    """("S", 4711); of a process that has ended meanwhile ("", 0)."""
    try:
        state, parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    return state, int(parent)


def open_files(pids):
    """What the descriptors of processes refer to ("socket:[4711]"), also while they close some."""
    found = set()
    for pid in pids:
        for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(os.readlink(descriptor))
    return found


def shared_files():
    names = os.listdir("/dev/shm") + os.listdir("/tmp")
    # Which another run on this machine may make meanwhile.
    of_tests = ("stage", "hosts", "check", "sshd", "surface", "worlds", "bench", "build", "qos", "roce")
    return {name for name in names if "aiacc" in name and not any(word in name for word in of_tests)}


def no_file_is_left(before, bound):
    """None that was not there before; others' files come and go meanwhile."""
    end = time.monotonic() + bound
    while not shared_files() <= before:
        assert time.monotonic() < end, f"left: {sorted(shared_files() - before)}"
        time.sleep(0.05)


def check_nothing_is_left(arguments, user, sleepers, victims, kill, bound, delay=None):
    """Runs a job, kills `victims` at the same time (when `sleepers` sleep, or after `delay` seconds) and waits until no
    process of it lives and no file of it is left. `kill(job, who)` is False if that victim is not there yet."""
    before = shared_files()
    job = Job(arguments, user=user)
    try:
        if delay is None:
            job.wait_for_pids("sleep", sleepers)
            killed = [kill(job, who) for who in victims]
            assert killed[0], "and the others, if the end of the first has not ended them already"
        else:
            time.sleep(delay)
            job.wait_for(lambda: all(kill(job, who) for who in victims), f"{victims} to be there")
        print(f"{'+'.join(victims)} / {arguments[-1]}: all gone after {job.gone_within(bound):.2f} s")
    finally:
        job.clean()
    no_file_is_left(before, bound)
