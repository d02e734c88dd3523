"""Elastic jobs (--max-np): new ranks in the places of failed ones. The others leave their world and enter the next one."""
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import tempfile
import time

import pytest

from launcher_hosts_support import ENTER, PRETEND
from launcher_support import Job, closing_line, compiled, run, users, with_longer_limits

RANK = 'case $AIACC_RANK in'
WORLDS = compiled("tests/programs/worlds.c")
REPLACED = r"a new rank is started in its place \(--max-np {}\) \[AR-RANK-LOST\]"


@pytest.fixture
def folder():
    """Where ranks of any user may leave files."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="aiacc-worlds-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


def worlds(folder, ranks, *deaths, options=(), least=1, **more):
    return run("--quiet", "-np", ranks, "--min-np", least, "--max-np", ranks, *options, WORLDS, folder, *deaths, **more)


def numbers(out):
    """Process of each rank of the last world, and the sizes of its worlds."""
    lines = [re.fullmatch(r"(\d+) is rank (\d+); sizes ([\d ]+)", line) for line in out.splitlines()]
    return {int(line[1]): (int(line[2]), [int(size) for size in line[3].split()]) for line in lines}


@pytest.mark.parametrize("user", users())
def test_a_killed_rank_is_replaced(user, folder):
    code, out, err = worlds(folder, 3, "5:1", user=user)
    assert code == 0 and numbers(out) == {0: (0, [3, 3]), 2: (1, [3, 3]), 1: (2, [3])}, err
    assert re.fullmatch(rf"aiaccrun: rank 1 on host \S+ was killed by signal 9 \(Killed\) after \d+\.\d s; {REPLACED.format(3)}\n", err), err


# Whether rank 0 ends before the others ask for a further world, or while they wait for it.
@pytest.mark.parametrize("when", ["0:400", "400:0"])
def test_who_wants_a_further_world_than_one_that_has_finished_gets_an_error(when):
    def job(least):
        return run("--quiet", "-np", 2, "--min-np", least, "--max-np", 2, compiled("tests/programs/rank.c"), "further", when)
    refused = r"init: peer failed \(.*\): rank 0 on host \S+ exited with status 0 and takes no part any more\n"
    code, _, err = job(1)
    assert code == 0 and re.fullmatch(refused + r"aiaccrun: rank 1 on host \S+ exited with status 108 after \d+\.\d s; 1 rank ended well \(--min-np 1\) \[AR-RANK-LOST\]\n", err), err
    code, _, err = job(2)
    assert code == 108 and re.match(refused, err) and closing_line(err).endswith("[AR-RANK-EXIT]"), err


def test_rank_0_is_one_that_has_the_state(folder):
    code, out, err = worlds(folder, 3, "5:0")
    assert code == 0 and numbers(out) == {1: (0, [3, 3]), 2: (1, [3, 3]), 0: (2, [3])}, err


def test_a_place_may_be_taken_again_and_again(folder):
    code, out, err = worlds(folder, 4, "2:1", "5:1", "8:3", "8:2", least=2)
    assert code == 0 and {rank for rank, _ in numbers(out).values()} == {0, 1, 2, 3} and numbers(out)[0][0] == 0, err
    assert len(re.findall(REPLACED.format(4), err)) == 4


def test_ranks_on_several_hosts(folder):
    code, out, err = worlds(folder, 4, "3:0", "6:3", options=[*PRETEND, ENTER, "-H", "a:2,b:2"])
    assert code == 0 and numbers(out) == {1: (0, [4, 4, 4]), 2: (1, [4, 4, 4]), 0: (2, [4, 4]), 3: (3, [4])}, (out, err)


def test_the_last_rank_of_a_host_is_replaced_there(folder):
    code, out, err = worlds(folder, 2, "4:1", options=[*PRETEND, ENTER, "-H", "a,b"])
    assert code == 0 and numbers(out) == {0: (0, [2, 2]), 1: (1, [2])}, (out, err)


def test_a_lost_host_is_left_out(folder):
    job = Job(["--quiet", "-np", 3, "--min-np", 1, "--max-np", 3, *PRETEND, ENTER, "-H", "a:2,b:1", "sh", "-c",
               f'{RANK} 2) kill -9 $PPID;; esac; exec "$@"', "sh", WORLDS, folder])
    code, out, err = job.finish()
    assert code == 0 and numbers(out) in ({0: (0, [2]), 1: (1, [2])}, {0: (0, [3, 2]), 1: (1, [3, 2])}), (out, err)
    assert "host b was lost" in err and "the job goes on with 2 ranks" in err


def test_reset_limit(folder):
    code, out, err = worlds(folder, 3, "2:1", "5:2", options=["--reset-limit", 1])
    assert code == 137 and out == "", err
    assert re.search(REPLACED.format(3), err) and "the ranks have met 1 time after the first (--reset-limit)" in err
    assert re.search(r"rank 2 on host \S+ was killed by signal 9 \(Killed\) .*first failure", closing_line(err)), err


def test_reset_limit_0_replaces_nobody(folder):
    code, out, err = worlds(folder, 2, "2:1", options=["--reset-limit", 0])
    assert code == 137 and out == "" and "a new rank" not in err, err


def test_a_program_that_always_fails_ends_the_job():
    code, _, err = run("--quiet", "-np", 3, "--min-np", 2, "--max-np", 3, "sh", "-c", "exit 5")
    assert code == 5 and len(err.splitlines()) <= 4, err


def test_a_new_rank_that_fails_before_it_joins_is_not_replaced(folder):
    """The others go on without it."""
    code, out, err = run("--quiet", "-np", 3, "--min-np", 1, "--max-np", 3, "sh", "-c",
                         f'{RANK} 1) mkdir {folder}/once 2>/dev/null || exit 6;; esac; exec "$@"', "sh", WORLDS, folder, "4:1")
    assert code == 0 and numbers(out) == {0: (0, [3, 2]), 2: (1, [3, 2])}, (out, err)
    assert "exited with status 6" in err and len(err.splitlines()) == 2, err


def test_nobody_is_replaced_when_a_rank_has_finished(folder):
    other = f"until [ -s {folder}/other ]; do sleep 0.05; done; while kill -0 $(cat {folder}/other); do sleep 0.05; done"
    code, out, err = run("--quiet", "-np", 2, "--min-np", 1, "--max-np", 2, "sh", "-c",
                         f"{RANK} 1) {other} 2>/dev/null; kill -9 $$;; esac; echo $$ >{folder}/new; mv {folder}/new {folder}/other; echo done")
    assert (code, out) == (0, "done\n") and "1 rank ended well (--min-np 1)" in err, err


def test_signals_and_time_outs_end_new_ranks_too(folder):
    arguments = ["--quiet", "-np", 2, "--min-np", 1, "--max-np", 2, "sh", "-c",
                 f'{RANK} 1) mkdir {folder}/once 2>/dev/null && kill -9 $$;; esac; exec sleep 1000']

    def attempt(limit):
        with contextlib.suppress(FileNotFoundError):
            (folder / "once").rmdir()
        return run("--timeout", limit, *arguments)
    code, _, err = with_longer_limits(attempt, lambda ended: "2 ranks stopped" in closing_line(ended[2]), 3)
    assert code == 124 and "a new rank" in err and "2 ranks stopped by aiaccrun" in closing_line(err), err
    (folder / "once").rmdir()
    job = Job(arguments)
    job.wait_for(lambda: (folder / "once").exists(), "the death")
    job.wait_for_pids("sleep", 2)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 128 + signal.SIGTERM


def test_what_a_lost_rank_left_is_gone_before_the_new_one_begins(folder):
    code, out, err = run("--quiet", "-np", 2, "--min-np", 1, "--max-np", 2, "sh", "-c",
                         f'{RANK} 1) mkdir {folder}/once 2>/dev/null && {{ sleep 1000 & echo $! > {folder}/left; kill -9 $$; }}; '
                         f'readlink /proc/$(cat {folder}/left)/exe && exit 8;; esac; exec "$@"', "sh", WORLDS, folder)
    assert code == 0 and numbers(out) == {0: (0, [2]), 1: (1, [2])}, (out, err)
    assert len(err.splitlines()) == 1 and "AR-LEFTOVER" not in err, err


def test_a_new_rank_that_ends_well_before_it_has_initialised_is_left_out(folder):
    code, out, err = run("--quiet", "-np", 3, "--min-np", 1, "--max-np", 3, "sh", "-c",
                         f'{RANK} 1) mkdir {folder}/once 2>/dev/null || exit 0;; esac; exec "$@"', "sh", WORLDS, folder, "3:1")
    assert code == 0 and numbers(out) == {0: (0, [3, 2]), 2: (1, [3, 2])}, (out, err)
    assert "exited with status 0 before it had initialised" in err and "the job goes on with 2 ranks" in err, err


@pytest.mark.parametrize("hosts", ["here", "a:2,b:2"])
@pytest.mark.parametrize("seed", range(2))
def test_ranks_that_are_killed_at_any_moment(seed, hosts, folder):
    """The job ends with 0, or with a killed rank when no rank with the state is left; it never waits for nobody."""
    options = [] if hosts == "here" else [*PRETEND, ENTER, "-H", hosts]
    job = Job(["--quiet", "-np", 4, "--min-np", 1, "--max-np", 4, "--kill-grace", 1, *options, WORLDS, folder, 1000])
    moments = random.Random(seed)
    for _ in range(12):
        time.sleep(moments.choice([0, 0.01, 0.03, 0.1]))
        ranks = job.pids("worlds")
        if ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(moments.choice(ranks), signal.SIGKILL)
    code, out, err = job.finish()
    print(err)
    assert code == 0 or (code == 137 and "first failure" in closing_line(err)), err
    ranks = [rank for rank, _ in numbers(out).values()]
    assert sorted(ranks) == list(range(len(ranks))) and (code != 0 or ranks), out


def test_output_of_new_ranks_has_their_tag(folder):
    code, out, err = worlds(folder, 2, "3:1", options=["--tag-output"])
    assert code == 0 and sorted(out.splitlines()) == ["[0] 0 is rank 0; sizes 2 2", "[1] 1 is rank 1; sizes 2"], err


def test_options_that_do_not_fit():
    for options, sentence in (
            (["--max-np", 2], "--max-np is given without --min-np; say with how many ranks the job still goes on [AR-USAGE]"),
            (["--min-np", 1, "--reset-limit", 1], "--reset-limit is given without --max-np, so that no rank would be replaced [AR-USAGE]"),
            (["--min-np", 1, "--max-np", 2, "--reset-limit", "-1"], "--reset-limit takes a number from 0 to 100000, not '-1' [AR-VALUE]"),
            (["--min-np", 1, "--max-np", 3], "--max-np is 3, and the job has 2 ranks; it begins with its most, because new ranks only "
                                             "take the places of failed ones [AR-RANKS]")):
        code, out, err = run("-np", 2, *options, "true")
        assert (code, out, err) == (2, "", f"aiaccrun: {sentence}\n")
