"""Each row of the table of exit codes in aiaccrun(1), and the closing line that goes with it."""
import os
import re
import signal

import pytest

from launcher_support import Job, closing_line, run, users, with_longer_limits

RANK = "case $RANK in"
# For ranks that go on when the agent has seen another one end, which has written its number to a file of that name.
SAYS, SEES = "echo $$ >{0}.new; mv {0}.new {0};", "until [ -e {0} ]; do sleep 0.05; done; while kill -0 $(cat {0}) 2>/dev/null; do sleep 0.05; done;"


def test_all_ranks_exit_0():
    code, out, err = run("-np", 2, "true")
    assert (code, out) == (0, "")


@pytest.mark.parametrize("status", [1, 3, 77, 255])
def test_the_first_failing_ranks_own_code(status):
    code, _, err = run("-np", 3, "sh", "-c", f"{RANK} 1) exit {status};; esac; exec sleep 1000")
    assert code == status
    assert re.search(rf"rank 1 on host \S+ exited with status {status} after \d+\.\d s \(first failure; 2 others stopped",
                     closing_line(err))


def test_the_first_in_time_counts_not_the_lowest_rank(tmp_path):
    first = tmp_path / "first"
    code, _, err = run("-np", 3, "sh", "-c", f"{RANK} 2) {SAYS.format(first)} exit 7;; 0) {SEES.format(first)} exit 9;; esac; exec sleep 1000")
    assert code == 7
    assert "rank 2 " in closing_line(err)


def test_later_failures_of_ranks_that_aiaccrun_ends_never_count():
    code, _, err = run("-np", 2, "sh", "-c", f"trap 'exit 9' TERM; {RANK} 1) sleep 0.3; exit 5;; esac; sleep 1000 & wait")
    assert code == 5


def test_min_np_lets_the_job_go_on_without_failed_ranks(tmp_path):
    lost = tmp_path / "lost"
    code, out, err = run("--quiet", "-np", 3, "--min-np", 2, "sh", "-c",
                         f"{RANK} 1) {SAYS.format(lost)} kill -9 $$;; esac; {SEES.format(lost)} echo $RANK $AIACC_MIN_SIZE")
    assert (code, sorted(out.split("\n"))) == (0, ["", "0 2", "2 2"]), err
    assert re.fullmatch(r"aiaccrun: rank 1 on host \S+ was killed by signal 9 \(Killed\) after \d+\.\d s; the job goes on with 2 ranks "
                        r"\(--min-np 2\) \[AR-RANK-LOST\]\n", err), err


def test_too_few_ranks_for_min_np_end_the_job_with_the_first_failure(tmp_path):
    first = tmp_path / "first"
    code, _, err = run("-np", 4, "--min-np", 3, "sh", "-c",
                       f"{RANK} 1) {SAYS.format(first)} exit 3;; 2) {SEES.format(first)} exit 4;; esac; exec sleep 1000")
    assert code == 3 and "the job goes on with 3 ranks" in err and re.search(r"rank 1 .* \(first failure; 2 others stopped", closing_line(err))


def test_min_np_is_at_most_all_ranks():
    code, _, err = run("-np", 2, "--min-np", 3, "true")
    assert code == 2 and err == "aiaccrun: --min-np is 3, and the job has 2 ranks [AR-RANKS]\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT])
def test_128_plus_the_signal_that_killed_the_first_rank(number):
    code, _, err = run("-np", 2, "sh", "-c", f"{RANK} 1) kill -{int(number)} $$;; esac; exec sleep 1000")
    assert code == 128 + number
    assert re.search(rf"rank 1 on host \S+ was killed by signal {int(number)} ", closing_line(err))


@pytest.mark.parametrize("arguments, names", [
    (("-np", 0, "true"), "0"), (("-np", -1, "true"), "-1"), (("-np", "x", "true"), "x"),
    (("-np", 2, "--tag-outptu", "true"), "--tag-output"), (("-np", 5, "-H", "localhost:4", "true"), "4"),
    (("-np", 2), ""),
])
def test_2_refused_before_anything_started(arguments, names):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("aiaccrun: ") and err.count("\n") == 1 and names in err


def test_124_time_is_up():
    code, _, err = with_longer_limits(lambda limit: run("-np", 2, "--timeout", limit, "sleep", 1000),
                                      lambda ended: "2 ranks stopped" in closing_line(ended[2]), 1)
    assert code == 124
    assert "2 ranks stopped" in closing_line(err)


def test_124_with_ranks_that_ignore_term(tmp_path):
    def attempt(limit):
        job = Job(["-np", 2, "--timeout", limit, "--kill-grace", 1, "sh", "-c",
                   f"trap '' TERM; touch {tmp_path}/$RANK.{limit}; while :; do sleep 1; done"])
        code, _, _ = job.finish()
        return code, job.took - limit, len(list(tmp_path.glob(f"*.{limit}")))
    code, grace, ignoring = with_longer_limits(attempt, lambda ended: ended[2] == 2, 1)
    assert code == 124 and ignoring == 2 and grace >= 0.9


def test_126_not_executable(tmp_path):
    code, _, err = run("-np", 2, "/etc/passwd")
    assert code == 126 and "/etc/passwd" in err


def test_126_a_file_that_is_no_program(tmp_path):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF" + bytes(60))
    broken.chmod(0o755)
    code, _, err = run("-np", 2, broken)
    assert code == 126 and str(broken) in err


@pytest.mark.parametrize("program", ["/nonexistent/program", "no-such-program-anywhere"])
def test_127_not_found(program):
    code, _, err = run("-np", 2, program)
    assert code == 127 and program in err


@pytest.mark.parametrize("number, expected", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_128_plus_the_signal_that_the_user_sent(number, expected):
    job = Job(["-np", 2, "sleep", 1000])
    job.wait_for_pids("sleep", 2)
    job.process.send_signal(number)
    code, _, err = job.finish()
    assert code == expected
    assert "forwarded to 2 ranks" in err and "30 s" in err


def test_143_also_when_ranks_handle_term_and_exit_0():
    job = Job(["-np", 2, "sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"])
    job.wait_for_pids("sleep", 2)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 143


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("victim", ["aiacc-keeper", "aiacc-agent"])
def test_125_keeper_or_agent_lost(user, victim):
    job = Job(["-np", 2, "sleep", 1000], user=user)
    job.wait_for_pids("sleep", 2)
    os.kill(job.wait_for_pids(victim, 1)[0], signal.SIGKILL)
    code, _, err = job.finish()
    assert code == 125
    assert "AR-AGENT" in closing_line(err)


def test_too_low_a_limit_of_descriptors_is_named_wherever_it_is_reached():
    for limit in range(5, 26):
        code, _, err = run("-np", 2, "true", before=["prlimit", f"--nofile={limit}:{limit}", "--"])
        refused = f"has used up its {limit} file descriptors" in err and "AR-LIMIT" in err
        assert code == 0 or (code == 125 and refused), f"{limit}: {err}"


def test_125_no_more_descriptors_for_the_ranks():
    job = Job(["-np", 40, "sleep", 1000], before=["prlimit", "--nofile=40:40", "--"])
    code, _, err = job.finish()
    assert code == 125
    assert "40" in closing_line(err) and "descriptor" in closing_line(err)


@pytest.mark.skipif("ordinary" not in users(), reason="needs root, to become a user of its own")
def test_125_no_more_processes():
    job = Job(["-np", 64, "sleep", 1000], user="solitary", before=["prlimit", "--nproc=20:20", "--"])
    code, _, err = job.finish()
    assert code == 125
    assert "process" in closing_line(err)


def test_one_line_names_the_failure_and_nothing_is_repeated_per_rank():
    _, _, err = run("-np", 8, "sh", "-c", "exit 3")
    assert err.count("exited with status 3") == 1


def test_a_stopped_rank_is_reported():
    job = Job(["-np", 2, "sleep", 1000])
    pid = job.wait_for_pids("sleep", 2)[0]
    os.kill(pid, signal.SIGSTOP)
    assert f"(process {pid}) was stopped by signal {int(signal.SIGSTOP)}" in job.remark()
    job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 143  # TERM is followed by CONT, so the stopped rank ends too


@pytest.mark.skipif("ordinary" not in users(), reason="needs root, to become a user of its own")
def test_125_no_process_for_the_keeper():
    # Of a build with a sanitizer, the search for leaks is a process too.
    sanitizers = f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"
    code, out, err = run("-np", 1, "true", user="solitary", before=["prlimit", "--nproc=1:1", "--"], env={"ASAN_OPTIONS": sanitizers})
    assert (code, out) == (125, "")
    assert "AR-LIMIT" in closing_line(err) and "no more processes" in closing_line(err)
