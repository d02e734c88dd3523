"""Hosts on which no agent comes up: one sentence with its cause and cure, the evidence below it, exit code 125, and nothing
that stays behind on the others."""
import pathlib
import re
import signal

import pytest

from launcher_hosts_support import ENTER, FOLDER, PRETEND, script
from launcher_support import AIACCRUN, Job, run, with_longer_limits

BOUND = 5


def start(by, *arguments, hosts="a,b,c", **kwargs):
    return Job([*PRETEND, by, "-H", hosts, *arguments, "sh", "-c", "echo ran"], **kwargs).finish()


def start_with_short_leases(by):
    """What a starter leaves of its agent hears nothing more, and ends with its lease. Here only host b fails."""
    return with_longer_limits(lambda lease: start(by, env={"AIACC_LEASE": f"{lease}s"}), lambda ended: "host b:" in ended[2], 1)


def refused(result, id, *parts, code=125):
    assert result[0] == code, result[2]
    assert result[1] == "", "no rank ran anywhere"
    lines = result[2].splitlines()
    assert re.fullmatch(r"aiaccrun: [^\n]+ \[" + id + r"\]", lines[0]), result[2]
    assert all(line.startswith(("  ", "aiaccrun: ")) for line in lines[1:]), result[2]
    for part in parts:
        assert part in result[2], result[2]


def only(host, body):
    """A way that works for every host but one."""
    return f'host=$1; shift\nif [ $host = {host} ]; then {body}\nfi\nexec "$@"\n'


def test_a_host_that_is_not_known():
    by = script("unknown", only("b", 'echo "no host $host" >&2; exit 255;'))
    refused(start(by), "AR-START", "host b:", "exited with status 255", f"command: {by} b {AIACCRUN} --remote-keeper",
            "exit code 255", "stderr: no host b")


def test_several_hosts_share_one_report():
    by = script("all-unknown", 'echo "no host $1" >&2; exit 4\n')
    result = start(by)
    refused(result, "AR-START", "on hosts a, b and c:", "status 4")
    assert result[2].count("exit code") == 1


@pytest.mark.parametrize("body, parts", [
    ("exit 0;", ["status 0"]),
    ("kill -9 $$;", ["signal 9"]),
    ("echo hello; exit 0;", ["status 0", "printed: hello"]),
    ('read -r line; exit 9;', ["status 9"]),
    ('"$@" | head -c 3; exit 8;', ["status 8"]),
], ids=["at-once", "killed", "after-a-banner", "after-our-greeting", "in-the-middle-of-the-answer"])
def test_a_starter_that_dies(body, parts):
    refused(start_with_short_leases(script("dies", only("b", body))), "AR-START", "host b:", *parts)


def test_a_starter_that_dies_when_the_agent_is_up():
    by = script("dies-late", only("b", '"$@" | head -c 60; exit 8;'))
    said = r"host b[ :].*\[AR-(START|HOST-LOST)\]"
    code, out, err = with_longer_limits(lambda lease: start(by, env={"AIACC_LEASE": f"{lease}s"}), lambda ended: re.search(said, ended[2]), 1)
    assert code == 125 and re.search(said, err), err


def test_a_banner_is_skipped():
    by = script("banner", 'shift; head -c 60000 /dev/urandom; echo; echo "aiacc-agent: welcome"; exec "$@"\n')
    code, out, err = start(by)
    assert (code, out) == (0, "ran\n" * 3), err


def test_noise_without_an_end():
    refused(start(script("noise", only("b", "exec yes noise;"))), "AR-START", "host b:", "64 KiB", "printed: noise",
            "it was still running, and was ended")


def test_noise_where_the_agents_first_message_should_be():
    by = script("noise-then", only("b", '"$@" | { head -c 44; exec yes noise; };'))
    refused(start_with_short_leases(by), "AR-START", "host b:", "what answered is no agent: a frame announces 1936289646 bytes")


def test_what_is_printed_reaches_no_terminal_as_it_is():
    by = script("binary", only("b", r"printf 'one\033[2J\302\233\177\200 gr\303\274n\n' >&2; exit 1;"))
    err = start(by)[2]
    assert "  stderr: one[2J gr\u00fcn\n" in err, err


def test_an_output_that_is_closed_while_the_starter_lives_on():
    """Nobody speaks for the host any more; it is not waited for until the starter ends."""
    by = script("mute", only("b", '{ "$@" | head -c 400; } ; exec >&-; exec sleep 1000;'))
    said = "host b was lost: its connection ended before the job did;"

    def attempt(lease):
        job = Job([*PRETEND, by, "-H", "a,b,c", "sleep", "1000"], env={"AIACC_LEASE": f"{lease}s"})
        code, _, err = job.finish()
        print(f"lost after {job.took:.2f} s")
        return code, err
    code, err = with_longer_limits(attempt, lambda ended: said in ended[1], 1)
    assert code == 125 and said in err, err


def test_a_host_that_only_echoes():
    by = script("echo", only("b", "exec cat;"))
    ended = with_longer_limits(lambda limit: start(by, env={"AIACC_INIT_TIMEOUT": f"{limit}s"}), lambda ended: "host b:" in ended[2], 1)
    refused(ended, "AR-START", "host b:", "no agent answered within ", "it was still running")


def test_one_line_when_hosts_are_slow(tmp_path):
    """It comes after some seconds. On a slow machine another host may not be there either then."""
    for number in range(3):
        told = tmp_path / f"told-{number}"
        by = script("slow", only("b", f'until [ -e {told} ]; do sleep 0.05; done; exec "$@";'))
        job = Job([*PRETEND, by, "-H", "a,b,c", "sh", "-c", "echo ran"])
        with job.killed_after():
            line = job.process.stderr.readline().decode()
        told.touch()
        code, out, err = job.finish_bytes()
        assert (code, out) == (0, b"ran\n" * 3), err
        assert "hosts to come up: " in line and " b" in line and b"AR-WAITING" not in err, (line, err)
        if line == "aiaccrun: waiting for 1 of 3 hosts to come up: b [AR-WAITING]\n":
            return
    raise AssertionError(line)


def test_remote_aiaccrun_missing():
    by = script("missing", only("b", 'exec sh -c "exec /no/such/$(basename $1)";'))
    result = start(by)
    refused(result, "AR-REMOTE-MISSING", "host b:", "install the same version", f"  command: {by} b {AIACCRUN} --remote-keeper\n  exit code 127",
            f"  command: {by} b aiaccrun --remote-keeper\n  exit code 127")
    assert result[2].count("exit code") == 2


def test_aiaccrun_from_path_when_it_is_elsewhere():
    by = script("elsewhere", only("b", f'case $1 in /*) exit 127;; esac; PATH={AIACCRUN.parent}:$PATH; exec "$@";'))
    code, out, err = start(by)
    assert (code, out) == (0, "ran\n" * 3), err


def test_a_file_that_is_no_aiaccrun():
    refused(start(script("no-program", only("b", "exec /etc/passwd;"))), "AR-REMOTE-MISSING", "host b:", "exit code 126")


def test_another_version():
    other = FOLDER / "other-aiaccrun"
    binary = AIACCRUN.read_bytes()
    ours = re.search(rb"aiaccrun \(aiacc\) \d\.\d\.\d", run("--version")[1].encode())[0]
    other.write_bytes(re.sub(rb"aiaccrun \(aiacc\) ", b"aiaccrun (other) ", binary))
    other.chmod(0o755)
    if other.read_bytes() == binary:
        pytest.skip("this build's version text is not in one piece")
    by = script("version", only("b", f'shift; exec {other} "$@";'))
    refused(start(by), "AR-REMOTE-VERSION", "host b:", "aiaccrun (other)", ours.decode())


@pytest.mark.parametrize("step", [-1, 1], ids=["older", "newer"])
def test_another_launch_protocol_of_the_same_version(step):
    result = start(script("protocol", only("b", f"exec {GREET} {step};")))
    refused(result, "AR-REMOTE-VERSION", "host b:", "install the same version on both")
    there, here = map(int, re.search(r"with launch protocol (\d+) is there and .* with (\d+) here", result[2]).groups())
    assert there == here + step


# Speaks as an agent does that has just come up, of a launch protocol that is so much newer, and is gone.
GREET = script("greet", """import struct, sys
def take(form):
    return struct.unpack("<" + form, sys.stdin.buffer.read(struct.calcsize("<" + form)))
def text():
    return sys.stdin.buffer.read(*take("I"))
def packed(bytes):
    return struct.pack("<I", len(bytes)) + bytes
_, kind, protocol = take("IHH")
version, marker, _ = text(), text(), take("q")
up = struct.pack("<HH", 120, protocol + int(sys.argv[1])) + packed(version) + packed(b"") + bytes(2) + 3 * packed(b"")
sys.stdout.buffer.write(b"aiacc-agent:" + marker[::-1] + packed(up))
""", "/usr/bin/python3")


def test_a_host_that_is_lost_before_ranks_start():
    by = script("lost-early", f"case $1 in b) exec {GREET} 0;; esac; exec sleep 1000\n")
    code, out, err = start(by, hosts="a,b")
    assert (code, out) == (125, "")
    assert re.search(r"host b was lost: its connection ended before the job did; no rank had been started after \d+\.\d s "
                     r"\[AR-HOST-LOST\]", err), err


def test_the_command_itself_is_missing():
    refused(start("/no/such/enter"), "AR-START", "hosts a, b and c:", "/no/such/enter")


def ssh(tmp_path, body):
    folder = tmp_path / "bin"
    folder.mkdir()
    if body is not None:
        (folder / "ssh").write_text("#!/bin/sh\n" + body)
        (folder / "ssh").chmod(0o755)
    return {"PATH": f"{folder}"}


@pytest.mark.parametrize("said, id", [
    ("ssh: Could not resolve hostname b: Name or service not known", "AR-SSH-RESOLVE"),
    ("ssh: connect to host b port 22: Connection refused", "AR-SSH-REFUSED"),
    ("ssh: connect to host b port 22: No route to host", "AR-SSH-UNREACHABLE"),
    ("ann@b: Permission denied (publickey,password).", "AR-SSH-AUTH"),
    ("Host key verification failed.", "AR-SSH-HOSTKEY"),
    ("kex_exchange_identification: Connection closed by remote host", "AR-SSH-DROPPED"),
])
def test_what_ssh_says_is_passed_on_with_a_cure(tmp_path, said, id):
    env = ssh(tmp_path, f"echo '{said}' >&2; exit 255\n")
    refused(run("-H", "b", "/bin/true", env=env), id, "command: ssh -T -x -o BatchMode=yes b ", "exit code 255", said)


def test_no_ssh(tmp_path):
    refused(run("-H", "b", "/bin/true", env=ssh(tmp_path, None)), "AR-SSH-MISSING", "--launch-agent")


def test_ssh_gets_the_host_and_constant_words(tmp_path):
    env = ssh(tmp_path, f'echo "$@" >&2; while [ "$1" != b ]; do shift; done; shift; exec /bin/sh -c "$*"\n')
    hosts = tmp_path / "hosts"
    hosts.write_text("ann@b slots=2 port=2222\n")
    code, out, err = run("--hostfile", hosts, "/bin/sh", "-c", "echo $RANK", env=env)
    assert code == 0, err
    assert sorted(out.split()) == ["0", "1"]


def test_real_ssh_to_a_closed_port(tmp_path):
    if not pathlib.Path("/usr/bin/ssh").exists():
        pytest.skip("no ssh here")
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 port=1\n")
    refused(run("--hostfile", hosts, "true"), "AR-SSH-REFUSED", "Connection refused")


def test_127_program_missing():
    for hosts, named in (("b:2", "host b:"), ("a,b,c", "hosts a, b and c:")):
        result = Job([*PRETEND, ENTER, "-H", hosts, "no-such-program-anywhere"]).finish()
        refused(result, "AR-PROGRAM", named, "no-such-program-anywhere", code=127)


def test_2_working_directory_missing():
    result = Job([*PRETEND, ENTER, "-H", "b:2", "--wdir", "/no/such/folder", "true"]).finish()
    refused(result, "AR-WDIR", "host b:", "/no/such/folder", code=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_interrupted_while_hosts_come_up(number):
    by = script("never", only("b", "exec sleep 1000;"))
    job = Job([*PRETEND, by, "-H", "a,b", "sh", "-c", "echo ran"])
    job.wait_for_pids("sleep", 1)
    job.process.send_signal(number)
    code, out, err = job.finish()
    assert (code, out) == (128 + number, ""), err


def test_aiaccrun_killed_while_hosts_come_up():
    by = script("never", only("b", "exec sleep 1000;"))
    job = Job([*PRETEND, by, "-H", "a,b", "sh", "-c", "echo ran"])
    job.wait_for_pids("sleep", 1)
    job.process.kill()
    print(f"all gone after {job.gone_within(BOUND):.2f} s")


@pytest.mark.parametrize("value", ["x", "0", "1d2"])
def test_2_a_lease_that_makes_no_sense(value):
    code, out, err = run("-np", 1, "true", env={"AIACC_LEASE": value})
    assert (code, out) == (2, "") and "AIACC_LEASE" in err and "AR-VARIABLE" in err
