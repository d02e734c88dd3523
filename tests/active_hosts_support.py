"""What holds of real ranks whose messages between hosts go over a library of active messages (UCX, libfabric), on hosts that share
nothing but a network: the tests of each library inherit it."""
import json
import re
import subprocess

import pytest

from launcher_support import STAGE, Job
from runtime_process_test import said
from surface_hosts_test import CASES


class OverALibrary:
    transport = ""       # as AIACC_TRANSPORT names it
    settings = ()        # with which it runs everywhere
    description = ""     # what it then says of itself, a regular expression
    bad_setting = ""     # one with which it runs nowhere
    library = ""         # its name, in sentences

    @pytest.fixture(autouse=True, scope="class")
    def available(self):
        report = json.loads(subprocess.run([STAGE / "bin/aiacc-info", "--json"], capture_output=True, check=True).stdout)
        way = next(way for way in report["transports"] if way["name"] == self.transport)
        if not way["available"]:
            pytest.skip(way["why"])

    def on(self, hosts, where, *arguments):
        options = [word for setting in (f"AIACC_TRANSPORT={self.transport}", *self.settings) for word in ("-x", setting)]
        return Job(["--launch-agent", hosts.enter, "-H", where, *options, *arguments])

    @pytest.mark.parametrize("where", ["h0:1,h1:1", "h0:2,h1:2"])
    def test_sums_of_all_sizes_and_the_network_is_named_once(self, hosts, rank, where):
        code, out, err = self.on(hosts, where, "-x", "AIACC_LOG=net=info", rank, "loop", 2).finish()
        assert (code, out) == (0, ""), err
        named = rf"the network between the hosts of this job is {self.transport} \({self.description}"
        assert len(re.findall(named, err)) == 1, err

    def test_collectives(self, surface, hosts):
        code, out, err = self.on(hosts, "h0:2,h1:1", surface, 0, CASES).finish()
        assert (code, out, said(err)) == (0, "", "")

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

    def test_messages_that_it_cannot_protect_are_refused(self, hosts, rank):
        code, _, err = self.on(hosts, "h0:1,h1:1", "-x", "AIACC_ENCRYPT=data", rank, "barrier").finish()
        assert code != 0 and "AIACC_ENCRYPT=data: the network transport of this job cannot encrypt" in err, err

    def test_without_its_networks_it_is_refused_in_one_sentence(self, hosts, rank):
        code, _, err = self.on(hosts, "h0:1,h1:1", "-x", self.bad_setting, rank, "barrier").finish()
        assert code != 0 and f"the transport {self.transport} is not available: {self.library} 1" in err, err
