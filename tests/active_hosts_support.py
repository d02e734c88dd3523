"""What holds of real ranks whose messages between hosts go over a library of active messages (UCX, libfabric), on hosts that share
nothing but a network: the tests of each library inherit it."""
import functools
import json
import re
import subprocess
import time

import pytest

from launcher_support import STAGE, Job, with_longer_limits
from runtime_process_test import said
from surface_hosts_test import CASES


ENDS = "between rank 0 on host h0 and rank 1 on host h1"


def connections(hosts, name):
    """The TCP connections of a host, each by both its ends."""
    command = hosts.on(name, ["ss", "-Htn", "state", "established"])
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {tuple(line.split()[-2:]) for line in lines}


def a_port_goes_down(hosts, start):
    """The job of h0 and h1 that start(seconds) makes ends when its operation's time is over, and says for which rank it has waited."""
    def attempt(seconds):
        job = start(seconds)
        job.wait_for(lambda: connections(hosts, "h1") or job.process.poll() is not None, "a connection")
        hosts.cut_at_switch("h1")
        try:
            code, _, err = job.finish()
        finally:
            hosts.mend_at_switch("h1")
        assert code != 0, err
        return len(re.findall(r"^\w+: timed out \(about rank [01]\): .*; rank [01] does not answer", err, re.M)), err
    told, err = with_longer_limits(attempt, lambda ended: ended[0] > 0, 2)
    assert 1 <= told <= 2, err


class OverALibrary:
    transport = ""       # as AIACC_TRANSPORT names it
    settings = ()        # with which it runs everywhere
    description = ""     # what it then says of itself, a regular expression
    bad_setting = ""     # one with which it runs nowhere
    library = ""         # its name, in sentences
    may_crash = ""       # why, where a connection was reset

    @pytest.fixture(autouse=True, scope="class")
    def available(self):
        report = json.loads(subprocess.run([STAGE / "bin/aiacc-info", "--json"], capture_output=True, check=True).stdout)
        way = next(way for way in report["transports"] if way["name"] == self.transport)
        if not way["available"]:
            pytest.skip(way["why"])

    def on(self, hosts, where, *arguments, **kwargs):
        options = [word for setting in (f"AIACC_TRANSPORT={self.transport}", *self.settings) for word in ("-x", setting)]
        return Job(["--launch-agent", hosts.enter, "-H", where, *options, *arguments], **kwargs)

    @pytest.mark.parametrize("where", ["h0:1,h1:1", "h0:2,h1:2"])
    def test_sums_of_all_sizes_and_the_network_is_named_once(self, hosts, rank, where):
        code, out, err = self.on(hosts, where, "-x", "AIACC_LOG=net=info", rank, "loop", 2).finish()
        assert (code, out) == (0, ""), err
        named = rf"the network between the hosts of this job is {self.transport} \({self.description}"
        assert len(re.findall(named, err)) == 1, err

    def test_collectives(self, surface, hosts):
        code, out, err = self.on(hosts, "h0:2,h1:1", surface, 0, CASES).finish()
        assert (code, out, said(err)) == (0, "", "")

    def test_a_rate_is_kept(self, hosts):
        """Each rank sends as many bytes as the sum has, and the bound is one of time that nothing can be too slow for."""
        code, out, err = self.on(hosts, "h0:1,h1:1", "-x", "AIACC_TC_BULK=rate=400mbit", STAGE / "bin/aiacc-perf", "allreduce", "--json", "-b", "4M",
                                 "-e", "4M", "-n", "5").finish()
        assert code == 0, err
        rows = [row for row in map(json.loads, out.splitlines()) if row["kind"] == "row"]
        assert rows and all(row["algbw_gbs"] <= 0.05 * 1.05 and row["wrong"] == 0 for row in rows), rows

    def test_ranks_that_leave_at_once_harm_nobody(self, hosts, rank):
        for _ in range(5):
            code, out, err = self.on(hosts, "h0:1,h1:1", rank, "barrier").finish()
            assert (code, out, said(err)) == (0, "", "")

    def test_survivors_name_the_rank_that_was_killed(self, hosts, rank):
        code, _, err = self.on(hosts, "h0:1,h1:1,h2:1", rank, "death", "kill").finish()
        assert code == 137, err
        survivors = re.findall(r"survivor (\d): (.*), rank (-?\d+): (.*)", err)
        assert sorted(survivor[0] for survivor in survivors) == ["0", "2"], err
        for _, name, about, sentence in survivors:
            assert name == "peer failed" and about == "1", err
            assert "rank 1 on host h" in sentence and "killed by signal 9" in sentence, err

    def break_path(self, hosts, job, said_to):
        """Resets the connections until ranks tell of a break. A reset between two messages loses nothing, and the library connects
        anew and goes on."""
        connected = functools.partial(connections, hosts, "h1")
        job.wait_for(connected, "a connection")
        time.sleep(0.5)
        patience = time.monotonic() + 60
        told, again = len(self.breaks(said_to.read_text())), 0
        while job.process.poll() is None and len(self.breaks(said_to.read_text())) == told:
            assert time.monotonic() < patience, said_to.read_text()
            if time.monotonic() >= again:
                before = connected()
                subprocess.run(hosts.on("h1", ["ss", "-K", "state", "established"]), capture_output=True, check=False)
                if connected() & before:
                    job.kill()
                    job.finish()
                    pytest.skip("the kernel resets no connection for ss -K")
                again = time.monotonic() + 10
            time.sleep(0.01)

    def breaks(self, err):
        return re.findall(rf"the path over {self.transport} {ENDS} broke \({self.library} has lost the connection: [^;]*\); "
                          "their messages go over tcp from now on", err)

    def test_a_job_whose_connections_are_reset_in_mid_transfer_goes_on_over_tcp(self, hosts, rank, tmp_path):
        end, said_to = tmp_path / "end", tmp_path / "stderr"
        with said_to.open("wb") as errors:
            job = self.on(hosts, "h0:1,h1:1", "-x", "AIACC_TIMEOUT=20s", rank, "until", end, stderr=errors)
        self.break_path(hosts, job, said_to)
        time.sleep(1)
        end.touch()
        code, out, _ = job.finish()
        err = said_to.read_text()
        if self.may_crash and "was killed by signal 11" in err:
            pytest.skip(self.may_crash)
        assert (code, out) == (0, ""), err
        assert 1 <= len(self.breaks(err)) <= 2, err

    @pytest.mark.parametrize("bulk", ["", "delay=1ms"])
    def test_a_path_that_works_again_is_used_again(self, hosts, rank, tmp_path, bulk):
        """The second break shows that messages have gone over the library again."""
        end, said_to = tmp_path / "end", tmp_path / "stderr"
        with said_to.open("wb") as errors:
            job = self.on(hosts, "h0:1,h1:1", "-x", "AIACC_TIMEOUT=60s", "-x", "AIACC_FAILBACK=200ms", "-x", f"AIACC_TC_BULK={bulk}", rank, "until", end,
                          stderr=errors)
        works = f"the path over {self.transport} {ENDS} works again; their messages go over {self.transport} from now on"
        for number in (1, 2):
            self.break_path(hosts, job, said_to)
            patience = time.monotonic() + 60
            while job.process.poll() is None and said_to.read_text().count(works) < 2 * number:
                assert time.monotonic() < patience, said_to.read_text()
                time.sleep(0.01)
            if job.process.poll() is not None:
                break
        time.sleep(0.5)
        end.touch()
        code, out, _ = job.finish()
        err = said_to.read_text()
        if self.may_crash and "was killed by signal 11" in err:
            pytest.skip(self.may_crash)
        assert (code, out) == (0, ""), err
        assert len(self.breaks(err)) >= 2 and err.count(works) >= 4, err

    def test_a_port_that_goes_down_is_one_sentence(self, hosts, rank):
        a_port_goes_down(hosts, lambda seconds: self.on(hosts, "h0:1,h1:1", "-x", f"AIACC_TIMEOUT={seconds}s", rank, "loop", 1_000_000))

    def test_messages_that_it_cannot_protect_are_refused(self, hosts, rank):
        code, _, err = self.on(hosts, "h0:1,h1:1", "-x", "AIACC_ENCRYPT=data", rank, "barrier").finish()
        assert code != 0 and "AIACC_ENCRYPT=data: the network transport of this job cannot encrypt" in err, err

    def test_without_its_networks_it_is_refused_in_one_sentence(self, hosts, rank):
        code, _, err = self.on(hosts, "h0:1,h1:1", "-x", self.bad_setting, rank, "barrier").finish()
        assert code != 0 and f"the transport {self.transport} is not available: {self.library} 1" in err, err
