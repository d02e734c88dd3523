"""Elastic jobs whose hosts a script finds (--host-discovery-script): they grow, lose ranks and hosts, and wait for others."""
import os
import pathlib
import re
import shutil
import signal
import tempfile

import pytest

import namespace_hosts
from launcher_hosts_support import ENTER, PRETEND, script
from launcher_support import Job, closing_line, compiled, run, users

RANK = 'case $AIACC_RANK in'
WORLDS = compiled("tests/programs/worlds.c")
STEPS = {"STEP_MS": "100", "AIACC_ENCRYPT": "none"}


@pytest.fixture
def folder():
    """Where ranks of any user may leave files."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="aiacc-worlds-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


class Hosts:
    """What the script prints, which a test may change."""

    def __init__(self, folder, *lines):
        self.file = folder / "hosts"
        self.write(*lines)
        self.script = script(f"list-{folder.name}", f"exec cat {self.file}\n")

    def write(self, *lines):
        new = self.file.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.chmod(0o644)
        new.rename(self.file)


def arguments(hosts, least, most, *more, options=()):
    return ["--min-np", least, "--max-np", most, "--host-discovery-script", hosts.script, *PRETEND, ENTER, *options, *more]


def numbers(out):
    """Process of each rank of the last world, and the sizes of its worlds."""
    lines = [re.fullmatch(r"(\d+) is rank (\d+); sizes ([\d ]+)", line) for line in out.splitlines()]
    return {int(line[1]): (int(line[2]), [int(size) for size in line[3].split()]) for line in lines}


def grows(folder, hosts, *later, steps=12, last_size=None, options=(), **kwargs):
    """A job of two ranks, whose script prints `later` once they have begun: (code, processes, stderr). It lasts until it has `last_size`."""
    more = {"LAST_SIZE": str(last_size)} if last_size else {}
    job = Job(arguments(hosts, 2, 3, "sh", "-c", f'touch {folder}/$AIACC_RANK; exec "$@"', "sh", WORLDS, folder, steps, options=options),
              env={**STEPS, **more}, **kwargs)
    job.wait_for(lambda: (folder / "0").exists() and (folder / "1").exists(), "the first ranks")
    hosts.write(*later)
    code, out, err = job.finish()
    return code, numbers(out), err


@pytest.mark.parametrize("user", users())
def test_a_job_grows_on_a_host_that_is_found(user, folder):
    code, ranks, err = grows(folder, Hosts(folder, "a:2"), "a:2", "b:2", last_size=3, user=user)
    assert code == 0 and ranks == {0: (0, [2, 3]), 1: (1, [2, 3]), 2: (2, [3])}, (ranks, err)
    assert "aiaccrun: rank 2 is started on host b, which has 2 slots [AR-NEW-RANKS]" in err.splitlines(), err


def test_a_job_grows_where_a_host_gets_slots(folder):
    code, ranks, err = grows(folder, Hosts(folder, "a:2"), "a:4", last_size=3)
    assert code == 0 and ranks == {0: (0, [2, 3]), 1: (1, [2, 3]), 2: (2, [3])}, (ranks, err)


def test_it_is_enough_that_the_script_is_in_the_working_directory(folder):
    hosts = Hosts(folder, "localhost")
    here = folder / "discover.sh"
    shutil.copy(hosts.script, here)
    hosts.script = here.name
    code, out, err = run(*arguments(hosts, 1, 3, "--slots-per-host", 2, "sh", "-c", "echo $AIACC_SIZE $AIACC_NEW_HOSTS $AIACC_INIT_TIMEOUT"), cwd=folder)
    assert (code, out, err) == (0, "2 yes 600000ms\n" * 2, ""), err


def test_a_lost_rank_moves_to_another_host(folder):
    hosts = Hosts(folder, "a:2")
    job = Job(arguments(hosts, 2, 2, WORLDS, folder, 40, "5:1", options=["--quiet"]), env=STEPS)
    job.wait_for(lambda: (folder / "5:1").exists(), "the death")
    hosts.write("a:2", "b:1")
    code, out, err = job.finish()
    assert code == 0 and numbers(out) == {0: (0, [2, 2]), 2: (1, [2])}, (out, err)
    assert re.fullmatch(r"aiaccrun: rank 1 on host a was killed by signal 9 \(Killed\) after \d+\.\d s; 1 rank waits until there are 2 "
                        r"\(--min-np\) \[AR-RANK-LOST\]\n", err), err


def test_a_lost_host_is_replaced(folder):
    hosts = Hosts(folder, "a:1", "b:1", "c:1")
    job = Job(arguments(hosts, 1, 2, "sh", "-c", f'{RANK} 1) echo $PPID >{folder}/agent;; esac; exec "$@"', "sh", WORLDS, folder,
                        options=["--quiet"]), env={**STEPS, "LAST_PLACE": "2"})
    agent = job.wait_for(lambda: (folder / "agent").exists() and (folder / "agent").read_text().strip(), "the agent of b")
    os.kill(int(agent), signal.SIGKILL)
    code, out, err = job.finish()
    assert code == 0 and numbers(out)[0][1][-1] == 2 and numbers(out)[2][0] == 1, (out, err)
    assert "host b was lost" in err, err


def test_ranks_of_a_host_that_vanishes_leave(folder):
    """Rank 0 too, and the job grows on another host at the same time."""
    hosts = Hosts(folder, "a:1", "b:2")
    job = Job(arguments(hosts, 2, 3, "sh", "-c", f'touch {folder}/$AIACC_RANK; exec "$@"', "sh", WORLDS, folder),
              env={**STEPS, "LAST_PLACE": "3"})
    job.wait_for(lambda: all((folder / str(rank)).exists() for rank in range(3)), "the first ranks")
    hosts.write("b:2", "c:1")
    code, out, err = job.finish()
    print(out, err)
    left = [line for line in out.splitlines() if line.startswith("0 is")]
    assert left == ["0 is not in the next world: rank 0 on host a takes no part any more: the script does not list its host any more"], (out, err)
    ranks = numbers("\n".join(line for line in out.splitlines() if line not in left))
    assert code == 0 and {place: rank for place, (rank, _) in ranks.items()} == {1: 0, 2: 1, 3: 2} and ranks[1][1][-1] == 3, (out, err)
    assert "the script does not list a any more: rank 0 leaves with the present world [AR-HOST-LEAVES]" in err, err
    assert "AR-RANK" not in err, err


def test_ranks_with_the_state_stay_until_others_have_it(folder):
    hosts = Hosts(folder, "a:2")
    job = Job(arguments(hosts, 2, 3, "sh", "-c", f'touch {folder}/$AIACC_RANK; exec "$@"', "sh", WORLDS, folder),
              env={**STEPS, "LAST_PLACE": "4", "LAST_SIZE": "3"})
    job.wait_for(lambda: (folder / "0").exists() and (folder / "1").exists(), "the first ranks")
    hosts.write("b:3")
    code, out, err = job.finish()
    left = sorted(line for line in out.splitlines() if "is not in the next world" in line)
    ranks = numbers("\n".join(line for line in out.splitlines() if line not in left))
    assert code == 0 and [line[0] for line in left] == ["0", "1"] and sorted(ranks) == [2, 3, 4], (out, err)
    assert ranks[2][0] == 0 and {sizes[-1] for _, sizes in ranks.values()} == {3}, (out, err)
    stay = "the script does not list a any more, where all ranks are that have the job's state: they stay until others have it [AR-HOST-LEAVES]"
    assert err.count(stay) == 1 and "the script does not list a any more: ranks 0 and 1 leave with the present world [AR-HOST-LEAVES]" in err, err


RESTS = ["--blacklist-cooldown-range", 1, 100]
SAYS_WHEN = "read now idle </proc/uptime; echo $now >>{}/begun"


def check_rests(job, folder, times):
    """Ranks that said when they began, and ended, had others in their place after 1, 2, 4 s and so on. Lets the job end then."""
    begun = folder / "begun"
    job.wait_for(lambda: begun.exists() and begun.read_text().count("\n") > times, f"{times} further ranks")
    (folder / "seen").touch()
    moments = [float(line) for line in begun.read_text().splitlines()]
    for number in range(times):
        assert moments[number + 1] - moments[number] >= 0.98 * 2 ** number, moments


def test_a_host_on_which_ranks_fail_rests(folder):
    """Rank 1 fails, and each that takes its place before it joins."""
    job = Job(arguments(Hosts(folder, "a:1", "b:1"), 1, 2, "sh", "-c", f'{RANK} 0) exec "$@";; *) {SAYS_WHEN.format(folder)}; exit 6;; esac', "sh", WORLDS,
                        folder, options=["--quiet", *RESTS]), env={**STEPS, "UNTIL": f"{folder}/seen"})
    check_rests(job, folder, 3)
    code, out, err = job.finish()
    assert code == 0 and err.count("exited with status 6") >= 3, err


def test_a_host_on_which_ranks_leave_at_once_rests(folder):
    hosts = Hosts(folder, "a:2")
    job = Job(arguments(hosts, 2, 3, "sh", "-c", f'{RANK} 0|1) touch {folder}/$AIACC_RANK;; *) {SAYS_WHEN.format(folder)}; exit 0;; esac; exec "$@"', "sh", WORLDS,
                        folder, options=RESTS), env={**STEPS, "UNTIL": f"{folder}/seen"})
    job.wait_for(lambda: (folder / "0").exists() and (folder / "1").exists(), "the first ranks")
    hosts.write("a:2", "b:1")
    check_rests(job, folder, 2)
    code, out, err = job.finish()
    assert code == 0 and numbers(out) == {0: (0, [2]), 1: (1, [2])}, (code, out, err)
    assert "rank 2 on host b exited with status 0 before it had initialised" in err, err


def test_a_job_ends_when_too_few_ranks_are_left_for_too_long(folder):
    code, out, err = run(*arguments(Hosts(folder, "a:1", "b:1"), 2, 2, "sh", "-c", f'{RANK} [01]) ;; *) exit 1;; esac; exec "$@"', "sh", WORLDS,
                                    folder, 1000, "3:1", options=["--quiet", "--elastic-timeout", 3]), env=STEPS)
    assert code == 124 and out == "", (out, err)
    assert re.match(r"aiaccrun: the job has had fewer than 2 ranks \(--min-np\) for 3 s \(--elastic-timeout\): 1 is left; 1 rank stopped by aiaccrun after "
                    r"\d+\.\d s \[AR-ELASTIC\]", closing_line(err)), err


def test_a_job_without_enough_slots_does_not_begin(folder):
    code, out, err = run(*arguments(Hosts(folder, "a:1"), 2, 2, "true", options=["--elastic-timeout", 1.5]))
    assert (code, out) == (124, "")
    waits, ends = err.splitlines()
    assert waits == "aiaccrun: waiting for 2 slots (--min-np): the script lists 1 [AR-WAITING]"
    assert re.fullmatch(r"aiaccrun: the script listed 1 slot and never 2 \(--min-np\) within 1\.5 s \(--elastic-timeout\); no rank had been started after "
                        r"\d+\.\d s \[AR-ELASTIC\]", ends), ends


def test_a_job_that_waits_for_slots_ends_by_a_signal(folder):
    job = Job(arguments(Hosts(folder, "a:1"), 2, 2, "true"))
    assert "waiting for 2 slots" in job.remark()
    job.process.send_signal(signal.SIGINT)
    code, _, err = job.finish()
    assert code == 128 + signal.SIGINT and re.fullmatch(r"aiaccrun: the job was ended by SIGINT after \d+\.\d s; no rank had been started \[AR-INTERRUPTED\]\n", err), err


def test_slots_that_come_late_begin_the_job(folder):
    hosts = Hosts(folder, "a:1")
    job = Job(arguments(hosts, 2, 5, WORLDS, folder))
    assert "waiting for 2 slots" in job.remark()
    hosts.write("a:1", "b:2")
    code, out, err = job.finish()
    assert code == 0 and sorted(numbers(out)) == [0, 1, 2], (out, err)


def test_a_script_that_fails_while_the_job_runs(folder):
    hosts = Hosts(folder, "a:2")
    body = f"test ! -e {folder}/0 || {{ echo no cloud >&2; exit 3; }}; exec cat {hosts.file}\n"
    hosts.script = script(f"fails-{folder.name}", body)
    job = Job(arguments(hosts, 2, 3, "sh", "-c", f'touch {folder}/$AIACC_RANK; exec "$@"', "sh", WORLDS, folder, options=["--timeout", 60]),
              env={**STEPS, "UNTIL": f"{folder}/told"})
    said = job.remark()
    (folder / "told").touch()
    code, out, err = job.finish()
    assert code == 0 and numbers(out) == {0: (0, [2]), 1: (1, [2])}, (out, said, err)
    assert said + err == (f"aiaccrun: the script {hosts.script}, which finds hosts, exited with status 3: no cloud; the job keeps the hosts of its "
                          f"last list [AR-DISCOVERY]\n"), said + err


def test_a_script_that_lists_hosts_only_once_has_listed_those_of_the_job(folder):
    """They are not said to be gone, and a lost rank is replaced there."""
    hosts = Hosts(folder, "a:1", "b:1")
    hosts.script = script(f"once-{folder.name}", f"mkdir {folder}/asked 2>/dev/null && exec cat {hosts.file}; echo no cloud >&2; exit 3\n")
    code, out, err = run(*arguments(hosts, 2, 2, WORLDS, folder, 12, "5:1", options=["--blacklist-cooldown-range", 1, 2]), env=STEPS)
    assert code == 0 and numbers(out) == {0: (0, [2, 2]), 2: (1, [2])}, (out, err)
    assert err.count("[AR-DISCOVERY]") == 1 and "AR-HOST-LEAVES" not in err, err


def test_a_script_that_hangs_delays_nothing(folder):
    hosts = Hosts(folder, "a:2")
    hosts.script = script(f"hangs-{folder.name}", f"test ! -e {folder}/0 || sleep 1000; exec cat {hosts.file}\n")
    code, ranks, err = grows(folder, hosts, "a:2", "b:2", steps=30)
    assert code == 0 and ranks == {0: (0, [2]), 1: (1, [2])} and err == "", (ranks, err)


def test_a_script_that_cannot_be_run_is_refused_before_anything_starts(folder):
    (folder / "plain").write_text("a\n")
    for name, code, what in ((folder / "absent", 127, rf"is not there \(looked for {folder}/absent\) \[AR-PROGRAM\]"),
                             ("no-such-script", 127, r"was not found in PATH .*\[AR-PROGRAM\]"),
                             (folder / "plain", 126, r"cannot be executed .*\[AR-NOEXEC\]")):
        found, out, err = run("--min-np", 1, "--host-discovery-script", name, "true")
        assert (found, out) == (code, "") and re.fullmatch(rf"aiaccrun: --host-discovery-script: {name} {what}\n", err), err


def test_a_host_that_cannot_be_reached_is_set_aside(folder):
    """At the begin, and later: one line each time."""
    reach = script(f"reach-{folder.name}", 'case $1 in nowhere*) echo "no route to $1" >&2; exit 255;; esac\nshift; exec "$@"\n')
    hosts = Hosts(folder, "a:2", "nowhere1")
    job = Job(["--min-np", 2, "--max-np", 5, "--host-discovery-script", hosts.script, "--separate-hosts", "--launch-agent", reach, "sh", "-c",
               f'touch {folder}/$AIACC_RANK; exec "$@"', "sh", WORLDS, folder], env={**STEPS, "LAST_SIZE": "3"})
    job.wait_for(lambda: (folder / "0").exists(), "the first ranks")
    hosts.write("a:2", "nowhere1", "nowhere2", "b:1")
    code, out, err = job.finish()
    assert code == 0 and numbers(out) == {0: (0, [2, 3]), 1: (1, [2, 3]), 2: (2, [3])}, (out, err)
    lines = [line for line in err.splitlines() if line.startswith("aiaccrun: ")]
    assert len(lines) == 3 and "no agent on host nowhere1: " in lines[0] and "; the job begins without it [AR-START]" in lines[0], err
    assert "no agent on host nowhere2: " in err and err.count("the job goes on without it, and tries it again later [AR-START]") == 1, err


def test_a_program_that_is_not_there_on_a_new_host(folder):
    """The job goes on, and new ranks that fail before they join are no loss of it."""
    code, out, err = run(*arguments(Hosts(folder, "a:1", "b:1"), 1, 2, "sh", "-c", f'{RANK} 0) exec "$@";; *) exit 6;; esac', "sh", WORLDS, folder, 20,
                                    options=["--quiet", "--blacklist-cooldown-range", 1000, 1000]), env=STEPS)
    assert code == 0 and numbers(out) == {0: (0, [1])}, (out, err)
    assert err.count("exited with status 6") == 1, err


def test_new_ranks_that_wait_when_the_others_finish_are_ended(folder):
    hosts = Hosts(folder, "a:2")
    until_it_has_begun = f"until [ -e {folder}/2 ]; do sleep 0.05; done"
    job = Job(arguments(hosts, 2, 3, "sh", "-c", f'touch {folder}/$AIACC_RANK; {RANK} 2) exec sleep 1000;; *) {until_it_has_begun};; esac; echo done',
                        options=["--quiet"]))
    job.wait_for(lambda: (folder / "0").exists() and (folder / "1").exists(), "the first ranks")
    hosts.write("a:2", "b:1")
    code, out, err = job.finish()
    assert (code, out, err) == (0, "done\ndone\n", ""), err


def test_reset_limit_0_lets_nobody_join(folder):
    code, ranks, err = grows(folder, Hosts(folder, "a:2"), "a:2", "b:1", steps=30, options=["--reset-limit", 0])
    assert code == 0 and ranks == {0: (0, [2]), 1: (1, [2])} and err == "", err


@pytest.mark.skipif(bool(namespace_hosts.unavailable()), reason=str(namespace_hosts.unavailable()))
def test_hosts_that_share_only_a_network(folder):
    hosts = Hosts(folder, "h0:1", "h1:1")
    with namespace_hosts.Hosts(3) as there:
        job = Job(["--quiet", "--min-np", 2, "--max-np", 4, "--host-discovery-script", hosts.script, "--launch-agent", there.enter, "sh", "-c",
                   f'touch {folder}/$AIACC_RANK; export STEP_MS=100 LAST_SIZE=4; exec "$@"', "sh", WORLDS, folder, 12], env=STEPS)
        job.wait_for(lambda: (folder / "0").exists() and (folder / "1").exists(), "the first ranks")
        hosts.write("h0:1", "h1:2", "h2:1")
        code, out, err = job.finish()
    assert code == 0 and err == "" and numbers(out) == {0: (0, [2, 4]), 1: (1, [2, 4]), 2: (2, [4]), 3: (3, [4])}, (out, err)  # one world for both


def test_options_that_do_not_fit(folder):
    hosts = Hosts(folder, "a:2")
    for options, sentence in (
            (["-H", "a", "--host-discovery-script", hosts.script], "--host-discovery-script and --host both name the hosts; give one of them [AR-USAGE]"),
            (["--hostfile", hosts.file, "--host-discovery-script", hosts.script],
             "--host-discovery-script and --hostfile both name the hosts; give one of them [AR-USAGE]"),
            (["--host-discovery-script", hosts.script], "how many ranks at least? give --min-np N beside --host-discovery-script [AR-RANKS]"),
            (["--host-discovery-script", ""], "--host-discovery-script needs a value: --host-discovery-script FILE [AR-VALUE]"),
            (["-np", 2, "--slots-per-host", 2],
             "--slots-per-host is given without --host-discovery-script, so that the job's hosts do not change [AR-USAGE]"),
            (["-np", 2, "--elastic-timeout", 2],
             "--elastic-timeout is given without --host-discovery-script, so that the job's hosts do not change [AR-USAGE]"),
            (["-np", 2, "--blacklist-cooldown-range", 1, 2],
             "--blacklist-cooldown-range is given without --host-discovery-script, so that the job's hosts do not change [AR-USAGE]"),
            (["-np", 2, "--blacklist-cooldown-range", 5, 2, "--host-discovery-script", hosts.script],
             "--blacklist-cooldown-range takes the shortest and the longest time in seconds, above 0, not '5 2' [AR-VALUE]"),
            (["-np", 2, "--max-np", 1, "--host-discovery-script", hosts.script], "--max-np is 1, and the job needs 2 ranks (--min-np) [AR-RANKS]"),
            (["-np", 2, "--slots-per-host", 0, "--host-discovery-script", hosts.script],
             "--slots-per-host takes a whole number from 1 to 100000, not '0' [AR-RANKS]"),
            (["-np", 2, "--dry-run", "--host-discovery-script", hosts.script],
             "--dry-run starts nothing, and the script of --host-discovery-script neither, so that there is no plan; give the hosts with --host [AR-USAGE]")):
        code, out, err = run(*options, "true")
        assert (code, out, err) == (2, "", f"aiaccrun: {sentence}\n")
