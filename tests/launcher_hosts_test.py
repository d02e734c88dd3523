"""Jobs on several hosts: who gets which place, environment and output, how they end, and what ranks are told of each other."""
import ast
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest

from launcher_hosts_support import ENTER, HELLO, LOGIN, PRETEND, RELAY, script
from launcher_support import Job, closing_line, compiled, run, users, with_longer_limits


def on(hosts, *arguments, by=ENTER, **kwargs):
    return Job([*PRETEND, by, "-H", hosts, *arguments], **kwargs)


PLACE = 'echo "$AIACC_RANK $AIACC_SIZE $AIACC_HOST_INDEX $AIACC_LOCAL_RANK $AIACC_LOCAL_SIZE"'


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("by", [ENTER, RELAY], ids=["enter", "relay"])
def test_each_rank_gets_its_place(by, user):
    code, out, err = on("a:2,b:1,c:3", "sh", "-c", PLACE, by=by, user=user).finish()
    assert code == 0, err
    assert sorted(out.splitlines()) == ["0 6 0 0 2", "1 6 0 1 2", "2 6 1 0 1", "3 6 2 0 3", "4 6 2 1 3", "5 6 2 2 3"]


def test_a_hundred_hosts_under_a_soft_limit_of_256_descriptors():
    hosts = ",".join(f"n{number}" for number in range(100))
    code, out, err = on(hosts, "sh", "-c", "echo $RANK; ulimit -n >&2", before=["prlimit", "--nofile=256:20000", "--"]).finish(timeout=300)
    assert code == 0, err
    assert sorted(map(int, out.split())) == list(range(100))
    assert err.split() == ["256"] * 100, "ranks have the limit that aiaccrun was started with"


def test_hosts_in_turn():
    code, out, _ = on("a:2,b:2", "--map-by", "node", "sh", "-c", PLACE).finish()
    assert code == 0
    assert sorted(out.splitlines()) == ["0 4 0 0 2", "1 4 1 0 2", "2 4 0 1 2", "3 4 1 1 2"]


def test_this_host_is_one_of_them_and_needs_no_starter(tmp_path):
    log = tmp_path / "log"
    log.touch()
    log.chmod(0o666)
    by = pathlib.Path(tmp_path, "log-enter")
    by.write_text(f'#!/bin/sh\necho "$@" >>{log}; shift; exec "$@"\n')
    by.chmod(0o755)
    code, out, err = on(f"localhost:2,b:1,{socket.gethostname()}:1", "sh", "-c", PLACE, by=str(by)).finish()
    assert code == 0, err
    assert sorted(out.splitlines()) == ["0 4 0 0 3", "1 4 0 1 3", "2 4 0 2 3", "3 4 1 0 1"]
    lines = log.read_text().splitlines()
    assert len(lines) == 1 and lines[0].startswith("b ") and lines[0].endswith("bin/aiaccrun --remote-keeper")


def test_the_names_of_hosts_for_scripts_of_horovod():
    words = ["--compat-env", "horovod", "sh", "-c", "echo $HOROVOD_RANK $HOROVOD_HOSTNAME"]
    code, out, err = on("a:1,b:2", *words, env={"HOROVOD_HOSTNAME": "another launcher's"}).finish()
    assert (code, sorted(out.splitlines())) == (0, ["0 a", "1 b", "2 b"]), err


def test_what_all_hosts_have_to_remark_is_one_line():
    cores = len(os.sched_getaffinity(0))
    names = [f"h{number}" for number in range(12)]
    code, out, err = on(",".join(f"{name}:{cores + 1}" for name in names), "true").finish()
    named = ", ".join(names[1:9]) + " and 3 more"
    assert code == 0 and re.fullmatch(rf"aiaccrun: {cores + 1} ranks share \d+ usable cores? of h0[^\n]*; likewise on {named} \[AR-BUSY\]\n", err), err


def test_a_host_file(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("# ours\na slots=2\nb:1 # small\na\n")
    code, out, err = run(*PRETEND, ENTER, "--hostfile", hosts, "sh", "-c", PLACE)
    assert code == 0, err
    assert sorted(out.splitlines()) == ["0 4 0 0 3", "1 4 0 1 3", "2 4 0 2 3", "3 4 1 0 1"]


@pytest.mark.parametrize("text, parts", [
    ("a slots=x\n", ["line 1 of", "slots=x"]),
    ("a\nb slot=2\n", ["line 2 of", "slots="]),
    ("ann@a\nbob@a\n", ["line 1 of", "line 2 of", "ann", "bob"]),
    ("a port=22\n\na port=2222\n", ["line 1 of", "line 3 of", "22", "2222"]),
    ("a\0b slots=2\n", ["line 1 of", r"'a\x00b'"]),
    ("host:22:4\n", ["line 1 of", "is no IPv6 address"]),
    ("", ["names no host"]),
    (None, ["cannot be read: No such file or directory"]),
])
def test_2_host_files_that_make_no_sense(tmp_path, text, parts):
    hosts = tmp_path / "hosts"
    if text is not None:
        hosts.write_text(text)
    code, out, err = run("-np", 2, "--hostfile", hosts, "true")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"aiaccrun: [^\n]+ \[AR-HOSTS\]\n", err), err
    for part in parts:
        assert part in err


def test_other_hosts_have_their_own_environment_and_a_part_of_ours():
    env = {"TOKEN": "hunter2", "NCCL_DEBUG": "WARN", "ASKED": "for", "AIACC_LOG": "info", "CUDA_VISIBLE_DEVICES": "1"}
    code, out, err = on("localhost,b", "-x", "ASKED", "-x", "GIVEN=a b", "--tag-output", "env", by=LOGIN, env=env).finish()
    assert code == 0, err
    mine, other = ({line.split("] ", 1)[1] for line in out.splitlines() if line.startswith(f"[{rank}] ")} for rank in (0, 1))
    for entry in ("TOKEN=hunter2", "NCCL_DEBUG=WARN", "ASKED=for", "GIVEN=a b", "CUDA_VISIBLE_DEVICES=1"):
        assert entry in mine
    for entry in ("NCCL_DEBUG=WARN", "ASKED=for", "GIVEN=a b", "AIACC_LOG=info", "HOME=/login", "LOGIN=yes", "PWD=/"):
        assert entry in other
    assert not any(entry.startswith(("TOKEN=", "CUDA_VISIBLE_DEVICES=")) for entry in other)


def test_nothing_of_the_job_stands_in_a_command_line():
    job = on("a,b", "-x", "TOKEN", "sh", "-c", "echo up; exec sleep 1000", env={"TOKEN": "hunter2"}, by=RELAY)
    for _ in range(2):
        assert job.process.stdout.readline() == b"up\n"
    for pid, name in job.processes().items():
        line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"hunter2" not in line and b"TOKEN" not in line or name == "aiaccrun", line
    job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 143


def test_ranks_start_in_aiaccruns_directory(tmp_path):
    tmp_path.chmod(0o755)
    code, out, _ = on("a,b", "pwd", cwd=tmp_path).finish()
    assert (code, out) == (0, f"{tmp_path}\n" * 2)


def test_dry_run_shows_every_host_and_starts_none():
    plan = run("--dry-run", "--launch-agent", "/no/such/enter -v", "-H", "localhost:2,b:2", "-x", "GIVEN=secret", "true")
    assert plan[0] == 0, plan[2]
    assert re.search(r"^  b: 2 ranks \(2-3\), 2 slots\n    agent: /no/such/enter -v b /\S+/bin/aiaccrun --remote-keeper$", plan[1], re.M)
    assert "were not asked" in plan[1] and re.search(r"rank 3 on b: .*\(assumed\)", plan[1])
    assert re.search(r"from here:.* PATH.* GIVEN", plan[1]) and "secret" not in plan[1]


def test_the_first_failure_counts_wherever_it_is():
    code, _, err = on("a:2,b:2", "sh", "-c", "case $RANK in 3) exit 7;; esac; exec sleep 1000").finish()
    assert code == 7
    assert re.search(r"rank 3 on host b exited with status 7 after .* 3 others stopped", closing_line(err))


def test_clocks_a_day_apart():
    if subprocess.run(["unshare", "--time", "--fork", "true"], capture_output=True).returncode != 0:
        pytest.skip("no clock of its own can be given to a process here")
    by = script("day", """case $1 in
b) before="unshare --time --boottime 86400 --monotonic 86400 --fork --kill-child";;
c) before="unshare --time --boottime 172800 --monotonic 172800 --fork --kill-child";;
esac; shift; exec $before "$@"\n""")
    rank = compiled("tests/programs/rank.c")
    code, out, err = on("a,b,c", "sh", "-c", f"cut -d. -f1 /proc/uptime; exec {rank} loop 1", by=by,
                        env={"AIACC_LEASE": "2s", "AIACC_ENCRYPT": "none"}).finish()
    assert (code, err) == (0, ""), err
    first, second, third = sorted(map(int, out.split()))
    assert second - first > 80000 and third - second > 80000
    code, _, err = on("a,b,c", "sh", "-c", f"trap '' TERM; exec {rank} death kill", by=by).finish()
    assert code == 137 and "rank 1 on host b was killed by signal 9" in closing_line(err), err
    assert all(f"survivor {number}: peer failed, rank 1: " in err for number in (0, 2)), err


def test_128_plus_the_signal_of_a_rank_of_another_host():
    code, _, err = on("a:2,b:2", "sh", "-c", "case $RANK in 2) kill -9 $$;; esac; exec sleep 1000").finish()
    assert code == 137
    assert "rank 2 on host b was killed by signal 9" in closing_line(err)


def test_124_on_all_hosts():
    code, _, err = with_longer_limits(lambda limit: on("a,b", "--timeout", limit, "sleep", 1000).finish(),
                                      lambda ended: "2 ranks stopped" in closing_line(ended[2]), 1)
    assert code == 124 and "2 ranks stopped" in closing_line(err)


@pytest.mark.parametrize("number, expected", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_reach_all_hosts(number, expected):
    job = on("a,b", "sh", "-c", f"trap 'echo $RANK; exit 0' {signal.Signals(number).name[3:]}; echo up; sleep 1000 & wait", by=RELAY)
    for _ in range(2):
        assert job.process.stdout.readline() == b"up\n"
    job.process.send_signal(number)
    code, out, err = job.finish()
    assert code == expected, err
    assert sorted(out.split()) == ["0", "1"]


def test_output_of_hosts_comes_whole_and_tagged():
    code, out, err = on("a:2,b:2", "--tag-output", "sh", "-c", "seq 20000; echo done >&2", by=RELAY).finish()
    assert code == 0
    for rank in range(4):
        mine = [line.split("] ")[1] for line in out.splitlines() if line.startswith(f"[{rank}] ")]
        assert mine == [str(number) for number in range(1, 20001)]
        assert f"[{rank}] done\n" in err


def test_a_starter_that_ends_with_the_agent_and_drops_what_it_carries():
    """As srun does at times: the agent ends only when aiaccrun has everything."""
    forgetful = script("forgetful", """import os, subprocess, sys, threading, time
process = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE)
def pass_on():
    while data := os.read(process.stdout.fileno(), 65536):
        time.sleep(0.1)
        while data:
            data = data[os.write(1, data):]
threading.Thread(target=pass_on, daemon=True).start()
os._exit(process.wait() & 255)
""", "/usr/bin/python3")
    code, out, err = on("a,b", "sh", "-c", "yes 0123456789 | head -n 20000", by=forgetful).finish()
    assert code == 0 and out == "0123456789\n" * 40000, err


def test_bytes_are_those_of_the_ranks():
    code, out, _ = on("b", "head", "-c", 3000000, "/dev/zero", by=RELAY).finish_bytes()
    assert code == 0 and out == bytes(3000000)


def welcomes(out):
    return sorted((ast.literal_eval(line.split(" ", 1)[1]) for line in out.splitlines() if line.startswith("welcome ")),
                  key=lambda told: told["rank"])


def test_the_start_barrier_gives_every_rank_what_it_needs_to_reach_the_others():
    code, out, err = on("a:2,b:1", *HELLO, "leave").finish()
    assert code == 0, err
    told = welcomes(out)
    assert [one["rank"] for one in told] == [0, 1, 2]
    assert [(one["local_rank"], one["local_size"], one["host"]) for one in told] == [(0, 2, "a"), (1, 2, "a"), (0, 1, "b")]
    for one in told:
        assert one["size"] == 3 and one["hosts_of_ranks"] == [0, 0, 1] and one["ports"] == [[("tcp", port.to_bytes(2, "little"))] for port in (7000, 7001, 7002)]
        assert [name for name, _ in one["hosts"]] == ["a", "b"]
        assert not any(address.startswith(("127.", "::1", "fe80")) for _, addresses in one["hosts"] for address in addresses)
        assert len(one["secret"]) == 64 and one["secret"] != "0" * 64
    assert len({one["secret"] for one in told}) == 1 and len({one["job"] for one in told}) == 1
    assert len({one["nonce"] for one in told}) == 2, "each host has its own memory"
    assert told[0]["secret"] not in err


def test_one_host_needs_no_secret():
    code, out, _ = on("b:2", *HELLO, "leave").finish()
    assert code == 0
    for one in welcomes(out):
        assert one["secret"] == "" and one["ports"] == [[], []] and [name for name, _ in one["hosts"]] == ["b"]


def test_every_job_has_a_secret_of_its_own():
    secrets = {welcomes(on("a,b", *HELLO, "leave").finish()[1])[0]["secret"] for _ in range(2)}
    assert len(secrets) == 2


def test_one_program_after_another():
    program = " ".join(HELLO)
    code, out, err = on("a:2,b", "sh", "-c", f"{program} leave && {program} leave").finish()
    assert code == 0, err
    assert len(welcomes(out)) == 6


def test_versions_of_hosts_that_differ_are_one_sentence():
    code, out, err = on("a,b", "sh", "-c", f"exec {' '.join(HELLO)} 1.$RANK").finish()
    assert code == 3
    sentence = "ranks on host a use aiacc 1.0 and ranks on host b aiacc 1.1: all ranks of a job need the same version"
    assert f"aiaccrun: {sentence} [AR-VERSIONS]" in err
    assert f"refused {sentence}" in out


def test_other_hosts_hear_of_a_death_at_once():
    job = on("a:2,b", "--kill-grace", 1, "sh", "-c",
             f"trap '' TERM; [ $RANK = 1 ] && exec {' '.join(HELLO)} stay; {' '.join(HELLO)} stay", by=RELAY)
    for _ in range(3):
        assert job.process.stdout.readline().startswith(b"welcome ")
    victim = next(pid for pid in job.pids("python3") + job.pids("say_hello.py")
                  if b"AIACC_RANK=1" in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    os.kill(victim, signal.SIGKILL)
    code, out, err = job.finish()
    assert code == 137
    assert out.splitlines()[:2] == ["lost 1 rank 1 on host a was killed by signal 9 (Killed)"] * 2
    assert "rank 1 on host a was killed by signal 9" in closing_line(err)


def test_1_a_rank_that_never_comes_while_ranks_of_another_host_wait():
    code, _, err = on("a,b", "sh", "-c", f"[ $RANK = 1 ] && exit 0; exec {' '.join(HELLO)} leave").finish()
    assert code == 1 and "rank 1 on host b exited with status 0 and never initialised" in closing_line(err)


@pytest.mark.parametrize("hosts, missing", [
    (["a:2,b:2"], "3 of 4 ranks called aiacc_init: ranks 0-1 on host a, rank 2 on host b; rank 3 on host b did not"),
    (["localhost:4"], f"3 of 4 ranks called aiacc_init: ranks 0-2 on host {socket.gethostname()}; rank 3 on host {socket.gethostname()} did not"),
], ids=["two", "one"])
def test_a_rank_that_never_comes_is_named_by_those_that_wait(hosts, missing):
    rank = compiled("tests/programs/rank.c")
    program = f"[ $RANK = 3 ] && exec sleep 1000; exec {rank} barrier"
    code, out, err = with_longer_limits(lambda limit: on(*hosts, "-x", f"AIACC_INIT_TIMEOUT={limit}ms", "sh", "-c", program).finish(),
                                        lambda ended: "3 of 4 ranks called" in ended[2], 1500)
    assert (code, out) == (107, ""), err
    assert re.search(rf"the job did not come together within [\d.]+ s \(AIACC_INIT_TIMEOUT\): {re.escape(missing)}\n", err), err


def test_master_address_is_rank_0s():
    code, out, _ = on("a,b", "sh", "-c", "echo $MASTER_ADDR $MASTER_PORT").finish()
    assert code == 0
    assert len(set(out.splitlines())) == 1 and out.split()[1] != "0"
    assert run(*PRETEND, ENTER, "-H", "b:2", "sh", "-c", "echo $MASTER_ADDR")[1] == "127.0.0.1\n" * 2


@pytest.mark.parametrize("user", users())
def test_isolated_on_every_host(user):
    code, out, err = on("a,b", "--isolate", "sh", "-c", "readlink /proc/self/ns/pid", user=user).finish()
    if code == 2 and "AR-ISOLATE" in err:
        pytest.skip(err)
    assert code == 0, err
    assert len(set(out.splitlines())) == 2 and os.readlink("/proc/self/ns/pid") not in out
