"""Ranks that something else than aiaccrun started meet at AIACC_RENDEZVOUS: by hand, in the manner of torchrun, srun and mpirun,
on one host and on several, with unauthenticated peers at the endpoint; and each thing that can be wrong has its sentence."""
import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time

import pytest

import namespace_hosts
from launcher_support import open_files, with_longer_limits

FOREIGN = ("AIACC_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
NO_HOSTS = namespace_hosts.unavailable()
on_hosts = pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))
TIMEOUT = 60


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    return make_secret(tmp_path_factory.mktemp("secret") / "job.secret")


def make_secret(path, bytes_=None, mode=0o600):
    path.write_bytes(os.urandom(32) if bytes_ is None else bytes_)
    path.chmod(mode)
    return path


@pytest.fixture
def port():
    """A port of this test's own: bound and not listening, so that the system gives it to nobody else meanwhile."""
    with contextlib.closing(socket.socket()) as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("0.0.0.0", 0))
        yield keeper.getsockname()[1]


class Ranks:
    """Processes that were started one by one; all are gone at the end."""

    def __init__(self):
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def start(self, command, **variables):
        environment = {**CLEAN, "AIACC_INIT_TIMEOUT": "50s", **{name: str(value) for name, value in variables.items()}}
        self.processes.append(subprocess.Popen([str(word) for word in command], env=environment, text=True,
                                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return self.processes[-1]

    def finish(self):
        """[(exit code, standard error)] in the order of starts, without the warning of every plain job over several hosts."""
        ends = []
        for process in self.processes:
            _, err = process.communicate(timeout=TIMEOUT)
            lines = [line for line in err.splitlines(True) if "travel unprotected between its" not in line]
            ends.append((process.returncode, "".join(lines)))
        return ends


def by_hand(rank, size, **more):
    return {"AIACC_RANK": rank, "AIACC_SIZE": size, **more}


def in_torchs_manner(rank, size, **more):
    return {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1,
            "TORCHELASTIC_RUN_ID": "none", **more}


def as_srun(rank, size, **more):
    return {"SLURM_PROCID": rank, "SLURM_STEP_ID": 0, "SLURM_NTASKS": size, "SLURM_STEP_NUM_TASKS": size, **more}


def as_mpirun(rank, size, **more):
    return {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size, "PMIX_RANK": rank, "PMIX_NAMESPACE": "x", **more}


def run_all(program, size, place, secret, identity=by_hand, ranks=None, **more):
    with Ranks() as started:
        for number in ranks if ranks is not None else range(size):
            started.start(program, AIACC_RENDEZVOUS=place, AIACC_SECRET_FILE=secret, **identity(number, size), **more)
        return started.finish()


@pytest.mark.parametrize("identity", [by_hand, in_torchs_manner, as_srun, as_mpirun])
def test_sums_of_all_sizes(rank, secret, port, identity):
    assert run_all([rank, "loop", 1], 3, f"127.0.0.1:{port}", secret, identity) == [(0, "")] * 3


@pytest.mark.parametrize("host", ["localhost", socket.gethostname(), "[::1]"])
def test_names_and_both_kinds_of_addresses(rank, secret, port, host):
    if host == "[::1]" and not pathlib.Path("/proc/net/if_inet6").exists():
        pytest.skip("this kernel has no IPv6")
    with contextlib.suppress(OSError):
        socket.getaddrinfo(host.strip("[]"), port)
        assert run_all([rank, "barrier"], 2, f"{host}:{port}", secret) == [(0, "")] * 2


def test_two_jobs_one_after_the_other_at_one_place(rank, secret, port):
    for _ in range(3):
        assert run_all([rank, "barrier"], 2, f"127.0.0.1:{port}", secret) == [(0, "")] * 2


def place_at(hosts, six=False):
    return f"[{hosts.address(0, 6)}]:4242" if six else f"{hosts.address(0)}:4242"


def start_over(hosts, started, program, where, place, secret, **more):
    """Rank i on the host where[i]."""
    for number, name in enumerate(where):
        variables = by_hand(number, len(where), AIACC_RENDEZVOUS=place, AIACC_SECRET_FILE=secret, AIACC_INIT_TIMEOUT="50s", **more)
        words = [f"{name_}={value}" for name_, value in variables.items()]
        started.start(hosts.on(name, ["env", *words, *program]))


@on_hosts
@pytest.mark.parametrize("place", ["ipv4", "ipv6", "name"])
def test_over_hosts_that_share_nothing_but_a_network(hosts, rank, secret, place):
    where = {"ipv4": place_at(hosts), "ipv6": place_at(hosts, True), "name": "h0:4242"}[place]
    with Ranks() as started:
        start_over(hosts, started, [rank, "loop", 1], ["h0", "h0", "h1", "h2", "h2"], where, secret)
        assert started.finish() == [(0, "")] * 5


@on_hosts
@pytest.mark.parametrize("where", [["h0", "h0", "h0"], ["h0", "h1", "h1", "h2"]])
def test_survivors_name_the_dead(hosts, rank, secret, where):
    with Ranks() as started:
        start_over(hosts, started, [rank, "death", "kill"], where, place_at(hosts), secret)
        ends = started.finish()
    for number, (code, err) in enumerate(ends):
        if number == 1:
            assert code in (-9, 137), err
            continue
        assert code == 0 and f"survivor {number}: peer failed, rank 1: " in err, err
        assert f"rank 1 ({where[1]}, " in err or f"rank 1 on host {where[1]}" in err, err


@on_hosts
@pytest.mark.parametrize("where", [["h0", "h0", "h0"], ["h0", "h1", "h1", "h2"]])
def test_local_peers_hear_of_a_death_while_rank_0_computes(hosts, rank, secret, tmp_path, where):
    goes_on = tmp_path / "rank 0 goes on"
    gone = f"peer failed, rank 1: rank 1 on host {where[1]} ended without leaving the job: process "
    with Ranks() as started:
        start_over(hosts, started, [rank, "absent", goes_on], where, place_at(hosts), secret, AIACC_TIMEOUT="50s")
        subprocess.run(hosts.on(where[1], ["kill", "-KILL", started.processes[1].stdout.readline().strip()]), check=True)
        _, err = started.processes[2].communicate(timeout=TIMEOUT)
        goes_on.touch()
        assert started.processes[2].returncode == 0 and f"survivor 2: {gone}" in err, err
        for number, process in enumerate(started.processes):
            _, err = process.communicate(timeout=TIMEOUT)
            assert number in (1, 2) or f"survivor {number}: peer failed, rank 1: " in err, err


@on_hosts
def test_clocks_a_day_apart(hosts, rank, secret):
    with Ranks() as started:
        day = ["unshare", "--time", "--boottime", 86400, "--monotonic", 86400, "--fork", "--kill-child"]
        probe = subprocess.run(["unshare", "--time", "--fork", "true"], capture_output=True, text=True)
        if probe.returncode != 0:
            pytest.skip(f"no clock of its own can be given to a rank here: {probe.stderr.strip()}")
        common = {"AIACC_RENDEZVOUS": place_at(hosts), "AIACC_SECRET_FILE": secret}
        for number, before in enumerate([[], day, []]):
            words = [f"{name}={value}" for name, value in by_hand(number, 3, **common).items()]
            started.start(hosts.on(f"h{number}", ["env", *words, *before, rank, "loop", 1]))
        assert started.finish() == [(0, "")] * 3


# --- what can be wrong ----------------------------------------------------------------------------------------------------

def sentence_of(program, **variables):
    with Ranks() as started:
        started.start(program, **variables)
        (code, err), = started.finish()
    assert code != 0
    return code - 100, err


INVALID_ARGUMENT, INVALID_STATE, SYSTEM, TIMED_OUT, MISMATCH = 1, 3, 6, 7, 9


@pytest.mark.parametrize("bytes_, mode, says", [
    (None, 0o640, "its mode is 0640: chmod 600 "),
    (b"short", 0o600, "has 5 bytes and a secret 32"),
    (b"x" * 33, 0o600, "has 33 bytes and a secret 32"),
    (b"\0" * 32, 0o600, "its 32 bytes have 1 different values, which can be guessed"),
    (b"x" * 32, 0o600, "its 32 bytes have 1 different values, which can be guessed"),
])
def test_a_bad_secret_file(rank, tmp_path, port, bytes_, mode, says):
    path = make_secret(tmp_path / "job.secret", bytes_, mode)
    status, err = sentence_of([rank, "barrier"], AIACC_RENDEZVOUS=f"127.0.0.1:{port}", AIACC_SECRET_FILE=path, **by_hand(0, 2))
    assert status == INVALID_ARGUMENT and f"AIACC_SECRET_FILE={path}: " in err and says in err


def test_a_missing_secret_gives_the_command_that_makes_one(rank, tmp_path, port):
    status, err = sentence_of([rank, "barrier"], AIACC_RENDEZVOUS=f"127.0.0.1:{port}", AIACC_SECRET_FILE=tmp_path / "none", **by_hand(0, 2))
    assert status == INVALID_ARGUMENT and "No such file" in err
    status, err = sentence_of([rank, "barrier"], AIACC_RENDEZVOUS=f"127.0.0.1:{port}", **by_hand(1, 2))
    assert status == INVALID_STATE
    command = re.search(r"make one with (\(umask .*?\)), bring", err)[1]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    assert run_all([rank, "barrier"], 2, f"127.0.0.1:{port}", tmp_path / "aiacc.secret") == [(0, "")] * 2


@pytest.mark.parametrize("variables, says", [
    ({}, "nothing tells: set AIACC_RANK and AIACC_SIZE"),
    ({"AIACC_RANK": 1}, "AIACC_SIZE is not set"),
    ({"AIACC_RANK": 2, "AIACC_SIZE": 2}, "AIACC_RANK=2 and AIACC_SIZE=2 cannot both be true"),
    ({"RANK": 5, "WORLD_SIZE": 4}, "RANK=5 and WORLD_SIZE=4 cannot both be true"),
])
def test_a_wrong_rank_or_size(rank, secret, port, variables, says):
    status, err = sentence_of([rank, "barrier"], AIACC_RENDEZVOUS=f"127.0.0.1:{port}", AIACC_SECRET_FILE=secret, **variables)
    assert status == INVALID_STATE and says in err


def test_a_bad_place(rank, secret):
    status, err = sentence_of([rank, "barrier"], AIACC_RENDEZVOUS="node-7", AIACC_SECRET_FILE=secret, **by_hand(1, 2))
    assert status == INVALID_ARGUMENT and "AIACC_RENDEZVOUS=node-7: the port is missing" in err
    status, err = sentence_of([rank, "barrier"], AIACC_RENDEZVOUS="192.0.2.1:4242", AIACC_SECRET_FILE=secret, **by_hand(0, 2))
    assert status == SYSTEM and "rank 0 cannot listen at AIACC_RENDEZVOUS=192.0.2.1:4242" in err


def test_a_host_that_nobody_knows_is_named_by_rank_0_too(rank, secret, port):
    """It needs no address to listen; the others do not find it."""
    ends = run_all([rank, "barrier"], 2, f"no-such-host.invalid:{port}", secret, AIACC_INIT_TIMEOUT="2s")
    for code, err in ends:
        assert code - 100 == TIMED_OUT and "the host 'no-such-host.invalid' has no known address: " in err, err


def test_the_port_of_torchs_store_is_never_listened_on(rank, secret, port):
    status, err = sentence_of([rank, "barrier"], AIACC_RENDEZVOUS=f"127.0.0.1:{port}", AIACC_SECRET_FILE=secret, MASTER_PORT=port, **by_hand(0, 2))
    assert status == INVALID_ARGUMENT and f"port {port} is MASTER_PORT" in err


def test_an_address_in_use(rank, secret):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
        status, err = sentence_of([rank, "barrier"], AIACC_RENDEZVOUS=place, AIACC_SECRET_FILE=secret, **by_hand(0, 2))
    assert status == SYSTEM and f"rank 0 cannot listen at AIACC_RENDEZVOUS={place}" in err and "Address already in use" in err


def test_a_rank_that_never_comes_is_named_by_all(rank, secret, port):
    ends = with_longer_limits(
        lambda limit: run_all([rank, "barrier"], 4, f"127.0.0.1:{port}", secret, ranks=[0, 1, 3], AIACC_INIT_TIMEOUT=f"{limit}ms"),
        lambda ended: all("; rank 2 did not" in err and "rank 3 on host" in err for _, err in ended), 2500)
    for code, err in ends:
        assert code - 100 == TIMED_OUT
        # Who is out of time a moment before rank 0 has left it when rank 0 says so.
        assert f" of 4 ranks came to AIACC_RENDEZVOUS=127.0.0.1:{port}: rank 0 on host " in err and "; rank 2 did not" in err, err
        assert re.search(r"rank 3 on host \S+ \(tcp:127\.0\.0\.1:\d+\)", err), err


def test_another_size_is_told_on_both_sides(rank, secret, port):
    with Ranks() as started:
        for number, size in [(0, 2), (1, 3)]:
            started.start([rank, "barrier"], AIACC_RENDEZVOUS=f"127.0.0.1:{port}", AIACC_SECRET_FILE=secret, **by_hand(number, size))
        for code, err in started.finish():
            assert code - 100 == MISMATCH and "says that the job has 3 ranks, and rank 0 (" in err and "says 2" in err


def test_a_second_job_at_the_same_place_is_turned_away(rank, secret, port):
    place = f"127.0.0.1:{port}"
    with Ranks() as ours, Ranks() as others:
        ours.start([rank, "loop", 1], AIACC_RENDEZVOUS=place, AIACC_SECRET_FILE=secret, AIACC_JOB="ours", **by_hand(0, 2))
        others.start([rank, "barrier"], AIACC_RENDEZVOUS=place, AIACC_SECRET_FILE=secret, AIACC_JOB="theirs", **by_hand(1, 2))
        (code, err), = others.finish()
        assert code - 100 == MISMATCH and "of the job 'theirs'" in err and "the job 'ours' meets" in err, err
        ours.start([rank, "loop", 1], AIACC_RENDEZVOUS=place, AIACC_SECRET_FILE=secret, AIACC_JOB="ours", **by_hand(1, 2))
        (zero, said), one = ours.finish()
    assert (zero, one) == (0, (0, "")), said
    assert "warn [rank 0 on " in said and "of the job 'theirs'" in said, "rank 0 says so too"


def test_what_a_peer_says_reaches_no_terminal_as_it_is(rank, secret, port):
    """Its job's name stands in the last error of the C ABI and in the log of rank 0."""
    place = f"127.0.0.1:{port}"

    def attempt(limit):
        with Ranks() as started:
            started.start([rank, "barrier"], AIACC_RENDEZVOUS=place, AIACC_SECRET_FILE=secret, **by_hand(0, 2), AIACC_INIT_TIMEOUT=f"{limit}s")
            started.start([rank, "barrier"], AIACC_RENDEZVOUS=place, AIACC_SECRET_FILE=secret, AIACC_JOB="a\x9b31m\u202eb\x1b[2J",
                          **by_hand(1, 2), AIACC_INIT_TIMEOUT=f"{limit}s")
            return started.finish()
    (code, err), (other, its_err) = with_longer_limits(attempt, lambda ended: ended[1][0] - 100 == MISMATCH, 3)
    assert (code - 100, other - 100) == (TIMED_OUT, MISMATCH), err
    for text in (err, its_err):
        assert r"the job 'a\xc2\x9b31m\xe2\x80\xaeb\x1b[2J'" in text, text
        assert not set("\x1b\x9b\u202e") & set(text), text


def listening_of(pid):
    """Addresses of /proc/net/tcp and tcp6 at which a process listens."""
    inodes = open_files([pid])
    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                found.append(words[1].rsplit(":")[0])
    return found


@pytest.mark.parametrize("host, at", [("127.0.0.1", "0100007F"), ("[::1]", "00000000000000000000000001000000")])
def test_a_job_that_meets_at_a_loopback_address_listens_nowhere_else(rank, secret, port, tmp_path, host, at):
    place = f"{host}:{port}"
    with Ranks() as started:
        for number in range(2):
            started.start([rank, "until", tmp_path / "over"], AIACC_RENDEZVOUS=place, AIACC_SECRET_FILE=secret, **by_hand(number, 2))
        zero, one = (process.pid for process in started.processes)
        for _ in range(50 * TIMEOUT):
            have = listening_of(zero), listening_of(one)
            if have == ([at], []):
                break
            time.sleep(0.02)
        (tmp_path / "over").touch()
        assert [code for code, _ in started.finish()] == [0, 0]
    assert have == ([at], []), "where rank 1 would come back to"


def test_a_launcher_that_leaves_no_way_to_meet_is_told_the_cure(rank):
    status, err = sentence_of([rank, "barrier"], **as_mpirun(1, 2))
    assert status == INVALID_STATE and "OMPI_COMM_WORLD_SIZE=2" in err and "set AIACC_RENDEZVOUS and AIACC_SECRET_FILE" in err


# What launchers of the document do that may not be installed: set their names for each process.
STAND_INS = {
    "torchrun": """n=$2; for r in $(seq 0 $((n - 1))); do
TORCHELASTIC_RUN_ID=none RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r MASTER_ADDR=localhost MASTER_PORT=1 "$4" "$MODE" & done; wait""",
    "srun": """n=$2; for r in $(seq 0 $((n - 1))); do
SLURM_PROCID=$r SLURM_STEP_ID=0 SLURM_NTASKS=$n SLURM_STEP_NUM_TASKS=$n "$3" "$MODE" & done; wait""",
    "mpirun": """n=$2; for r in $(seq 0 $((n - 1))); do
OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=$n "$7" "$MODE" & done; wait""",
}


def documented_commands():
    text = (pathlib.Path(os.environ["AIACC_SOURCE"]) / "docs/bootstrap.md").read_text()
    return re.findall(r"^```sh\n(.*?)\n```", text, re.S | re.M)


@pytest.mark.parametrize("number", range(2, len(documented_commands())))
def test_the_commands_of_the_document(rank, port, tmp_path, number):
    make, export, *starts = documented_commands()
    command = starts[number - 2]
    for name, body in STAND_INS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    train = tmp_path / "train"
    train.write_text(f'#!/bin/sh\n{rank} barrier && echo "rank done"\n')
    train.chmod(0o755)
    script = "\n".join([make, export.replace(":4242", f":{port}").replace("$(hostname)", "localhost"), command])
    done = subprocess.run(["sh", "-ec", script], cwd=tmp_path, env={**CLEAN, "PATH": f"{tmp_path}/bin:{CLEAN['PATH']}"},
                          capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "rank done\n" * 2, "")


@pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")
def test_under_a_real_mpirun(rank, secret, port):
    environment = {**CLEAN, "AIACC_RENDEZVOUS": f"127.0.0.1:{port}", "AIACC_SECRET_FILE": str(secret)}
    done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", str(rank), "loop", "1"], env=environment,
                          capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr


# On a host of its own, whose name server takes questions and never answers; the resolver would wait for minutes.
SILENT_SERVER = """
mount --bind {folder}/resolv.conf /etc/resolv.conf
mount --bind {folder}/nsswitch.conf /etc/nsswitch.conf
/usr/bin/python3 -c 'import socket, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind(("127.0.0.1", 53)); open("{folder}/up", "w").close(); time.sleep(1000)' \
  >/dev/null 2>&1 &
cat {folder}/up
exec env AIACC_RANK=1 AIACC_SIZE=2 AIACC_INIT_TIMEOUT=1s AIACC_SECRET_FILE={secret} AIACC_RENDEZVOUS=node-7.example.org:4242 \
  RES_OPTIONS="timeout:30 attempts:5" {rank} loop 1
"""


@on_hosts
def test_a_resolver_that_does_not_answer_is_not_waited_for(rank, secret, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n")
    os.mkfifo(tmp_path / "up")
    script = SILENT_SERVER.format(folder=tmp_path, secret=secret, rank=rank)
    with namespace_hosts.Hosts(1) as own:
        ended = subprocess.run(own.on("h0", ["sh", "-c", script]), capture_output=True, text=True, timeout=TIMEOUT)
    assert ended.returncode != 0
    assert "the host 'node-7.example.org' has no known address: the system's resolver did not answer within" in ended.stderr
    assert "(AIACC_INIT_TIMEOUT)" in ended.stderr
