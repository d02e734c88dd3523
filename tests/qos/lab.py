"""Hosts in the machine of tests/qos/run: what their queues and those of the switch are, what runs on them, and what the kernel has counted."""
import json
import os
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
STAGE = pathlib.Path(os.environ["AIACC_STAGE"])
sys.path.insert(0, str(SOURCE / "tests"))
import namespace_hosts  # noqa: E402

LINE_MBIT = 20  # the machine has one processor, which must not be the narrowest place
LINE = LINE_MBIT / 8 * 1448 / 1514  # payload of TCP, MB/s
PYTHON = {"AIACC_LIBRARY": STAGE / "lib/libaiacc.so", "PYTHONPATH": STAGE / "share/aiacc/python", "PYTHONDONTWRITEBYTECODE": "1"}


class Lab(namespace_hosts.Hosts):
    """Hosts whose cables from the switch carry LINE_MBIT each, behind a delay of 1 ms and `queue`: arguments of tc for the discipline there,
    10:. The delay, by netem, is also what makes the queue one that the sender's kernel does not know: it would keep its own packets in a
    queue few, as if it were the sender's. Packets are sent one by one, because a queue counts and marks a packet that is segmented later
    as one. `loss`: what netem does besides."""

    def __init__(self, count, queue, ecn=False, loss=""):
        super().__init__(count)
        self.queue = queue.split()
        self.ecn = ecn
        self.netem = f"netem delay 1ms limit 100000 {loss}".split()

    def make(self):
        super().make()
        for number, name in enumerate(self.names):
            port = f"port{number}"
            self.at_host(name, "ip", "link", "set", "eth0", "gso_max_segs", "1")
            self.at_host(name, "sysctl", "-qw", f"net.ipv4.tcp_ecn={1 if self.ecn else 0}")
            self.at_switch("ip", "link", "set", port, "gso_max_segs", "1")
            self.at_switch("tc", "qdisc", "add", "dev", port, "root", "handle", "1:", "htb", "default", "1")
            self.at_switch("tc", "class", "add", "dev", port, "parent", "1:", "classid", "1:1", "htb", "rate", f"{LINE_MBIT}mbit", "burst",
                           "15k", "cburst", "15k")
            self.at_switch("tc", "qdisc", "add", "dev", port, "parent", "1:1", "handle", "9:", *self.netem)
            self.at_switch("tc", "qdisc", "add", "dev", port, "parent", "9:1", "handle", "10:", *self.queue)

    def at_host(self, name, *command):
        there = ["nsenter", "--target", str(self.pids[name]), "--net", "--", *command]
        return subprocess.run(there, check=True, capture_output=True, text=True).stdout

    def at_switch(self, *command):
        return subprocess.run([*self.inside, *command], check=True, capture_output=True, text=True).stdout

    def at_each_egress(self, discipline):
        for name in self.names:
            self.at_host(name, "tc", "qdisc", "add", "dev", "eth0", "root", *discipline.split())

    def job(self, *program, **variables):
        """What a program says with one rank on each host."""
        settings = [word for name, value in {"AIACC_TIMEOUT": "120s", **variables}.items() for word in ("-x", f"{name}={value}")]
        command = [STAGE / "bin/aiaccrun", "--launch-agent", self.enter, "-H", ",".join(f"{name}:1" for name in self.names), *settings,
                   *program]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{program[0]} ended with {done.returncode}: {(done.stdout + done.stderr).strip()}")
        return done.stdout

    def perf(self, *arguments, **variables):
        """Its rows; a wrong result is an error of its own."""
        lines = map(json.loads, self.job(STAGE / "bin/aiacc-perf", "--json", *arguments, **variables).splitlines())
        return [one for one in lines if one["kind"] in ("row", "class")]

    def counted(self, what, handle="10:"):
        """Packets, by those disciplines of the switch: dropped or marked."""
        each = re.split(r"^(?=qdisc )", self.at_switch("tc", "-s", "qdisc", "show"), flags=re.MULTILINE)
        here = "".join(one for one in each if f" {handle} dev " in one)
        return sum(int(number) for number in re.findall(rf"{what} (\d+)", here))

    def tcp(self, counter):
        """Of all hosts: TcpOutSegs, TcpRetransSegs, TcpExtTCPDeliveredCE ..."""
        found = [re.search(rf"^{counter}\s+(\d+)", self.at_host(name, "nstat", "-asz"), re.MULTILINE) for name in self.names]
        return sum(int(one[1]) for one in found)
