#!/usr/bin/python3
"""Hosts that share nothing but a network, on one machine: each has net, uts, ipc, mount and pid namespaces of its own, its
own /dev/shm, /run and sysfs, and an Ethernet port on a switch that no other network touches.

    namespace_hosts.py 3 -- aiaccrun --launch-agent "$ENTER_HOST" -H h0:2,h1:2,h2:2 program
    namespace_hosts.py --rate 1gbit 2 -- ...            every host sends 1 Gbit/s at most
    namespace_hosts.py --rate 1gbit --flow-rate 300mbit 2 -- ...   and over each TCP connection 300 Mbit/s at most
    namespace_hosts.py --switch 100mbit:50ms 2 -- ...   the switch sends 100 Mbit/s to each host, behind a queue of 50 ms
    namespace_hosts.py --on h0 2 -- mpirun ...          the launcher runs on h0
    namespace_hosts.py --possible                       exits 0 if hosts can be made here, else says why not

ENTER_HOST is a command for --launch-agent: `$ENTER_HOST h1 program ...` runs a program there as sshd would, with a login's
environment. The hosts live exactly as long as this process, however it ends: the kernel takes them down.
"""
import argparse
import contextlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

TOOLS = ("unshare", "nsenter", "setpriv", "ip", "mount")
# What a login gives, and the mark by which tests find the processes of a job.
ENTER = """#!/bin/sh
# ENTER HOST COMMAND...: runs the command on the host, as a login would.
test -e "{folder}/$1" || {{ echo "enter: there is no host named $1" >&2; exit 255; }}
read -r pid <"{folder}/$1" && shift
exec nsenter --target "$pid" --net --uts --ipc --mount --pid --wd=/ -- \\
  env -i PATH="{path}" HOME="$HOME" USER="$(id -un)" SHELL=/bin/sh LANG=C.UTF-8 \\
  ${{TEST_JOB_MARK:+TEST_JOB_MARK="$TEST_JOB_MARK"}} "$@"
"""
# What launchers take for ssh: its options are skipped, its words are one line for a shell.
SSH = """#!/bin/sh
while case "$1" in -*) true;; *) false;; esac; do shift; done
host=$1; shift
exec {folder}/enter "$host" sh -c "$*"
"""
# The first process of a host: makes itself at home, says so, and then only reaps (an ignored SIGCHLD survives exec).
FIRST = """set -e
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind "$1" /etc/hosts
hostname "$2"
ip link set lo up
echo ready
trap '' CHLD
exec sleep infinity
"""


def unavailable():
    """Why hosts cannot be made here, or None."""
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=search_path())]
    if missing:
        return f"{', '.join(missing)} not found (Debian packages util-linux, iproute2)"
    probe = subprocess.run(["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc",
                            "mount", "-t", "sysfs", "sysfs", "/sys"], capture_output=True, text=True)
    return None if probe.returncode == 0 else f"namespaces cannot be made here: {probe.stderr.strip()}"


def search_path():
    return os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"


class Hosts:
    """`with Hosts(3) as hosts:` has h0, h1, h2; `hosts.enter` is the command for --launch-agent."""

    # `unplugged`: names of hosts that have no port. `flow_rate`: of each TCP connection over IPv4. `switch`: (rate, queue) of each of its
    # ports; unlike a host's own queue, its senders' kernels do not know it.
    def __init__(self, count, rate=None, unplugged=(), flow_rate=None, switch=None):
        self.names = [f"h{i}" for i in range(count)]
        self.rate = rate
        self.flow_rate = flow_rate
        self.switch = switch
        self.unplugged = set(unplugged)
        self.processes = []
        self.pids = {}

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="aiacc-hosts-"))
        try:
            self.folder.chmod(0o755)
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.kill()  # unshare's --kill-child ends the first process of the host, and so the kernel all others
            process.wait()
            process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def make(self):
        hosts = self.folder / "hosts"
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for number, name in enumerate(self.names):
            lines += [f"{self.address(number)} {name}", f"{self.address(number, 6)} {name}"]
        hosts.write_text("\n".join(lines) + "\n")
        for name, text in (("enter", ENTER), ("ssh", SSH)):
            (self.folder / name).write_text(text.format(folder=self.folder, path=search_path()))
            (self.folder / name).chmod(0o755)
        self.enter, self.ssh = str(self.folder / "enter"), str(self.folder / "ssh")

        switch = self.first_process("switch", hosts)
        inside = self.inside = ["nsenter", "--target", str(switch), "--net", "--"]
        self.run(*inside, "ip", "link", "add", "switch", "type", "bridge")
        self.run(*inside, "ip", "link", "set", "switch", "up")
        for number, name in enumerate(self.names):
            pid = self.pids[name] = self.first_process(name, hosts)
            (self.folder / name).write_text(f"{pid}\n")
            if name not in self.unplugged:
                self.plug(inside, number, pid)

    def plug(self, inside, number, pid):
        port = f"port{number}"
        self.run(*inside, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        self.run(*inside, "ip", "link", "set", port, "master", "switch", "up")
        if self.switch:
            self.run(*inside, "tc", "qdisc", "add", "dev", port, "root", "tbf", "rate", self.switch[0], "burst", "16k",
                     "latency", self.switch[1])
        there = ["nsenter", "--target", str(pid), "--net", "--"]
        self.run(*there, "ip", "address", "add", f"{self.address(number)}/24", "dev", "eth0")
        self.run(*there, "ip", "-6", "address", "add", f"{self.address(number, 6)}/64", "dev", "eth0", "nodad")
        self.run(*there, "ip", "link", "set", "eth0", "up")
        if self.flow_rate:
            self.limit_flows(there)
        elif self.rate:
            self.run(*there, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", self.rate, "burst", "256k",
                     "latency", "50ms")

    def limit_flows(self, there):
        """Each connection is in one of 256 classes, by four bits of either port (the lowest is 0 in those that Linux picks): two
        share a class, and so its rate, where these are equal."""
        line = self.rate or "10gbit"
        lines = ["qdisc add dev eth0 root handle 1: htb default 2",
                 f"class add dev eth0 parent 1: classid 1:1 htb rate {line} burst 256k quantum 60000",
                 f"class add dev eth0 parent 1:1 classid 1:2 htb rate {line} burst 256k quantum 60000"]
        for ports in range(256):
            lines += [f"class add dev eth0 parent 1:1 classid 1:{256 + ports:x} htb rate 1mbit ceil {self.flow_rate} burst 64k "
                      f"cburst 64k quantum 60000",
                      f"filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip protocol 6 0xff "
                      f"match ip sport {ports >> 4 << 1} 0x1e match ip dport {(ports & 15) << 1} 0x1e flowid 1:{256 + ports:x}"]
        self.run(*there, "tc", "-batch", "-", input="\n".join(lines) + "\n", text=True)

    def first_process(self, name, hosts):
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork",
             "--kill-child", "--mount-proc", "sh", "-c", FIRST, "first", str(hosts), name],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "PATH": search_path()})
        self.processes.append(process)
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"host {name} does not come up")
        return int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())

    def run(self, *command, **kwargs):
        subprocess.run(command, check=True, env={**os.environ, "PATH": search_path()}, **kwargs)

    @staticmethod
    def address(number, version=4):
        return f"10.77.0.{number + 1}" if version == 4 else f"fd77::{number + 1:x}"

    def on(self, name, command):
        """The command line that runs `command` on a host."""
        return [self.enter, name, *map(str, command)]

    def head(self, name, command):
        """The command line that runs a launcher with the host's network and name, which can enter the other hosts: it stays
        in the pid namespace in which their first processes have their numbers, with a /dev/shm of its own."""
        mounts = 'mount --bind "$0" /etc/hosts && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec "$@"'
        return ["nsenter", "--target", str(self.pids[name]), "--net", "--uts", "--ipc", "--", "unshare", "--mount",
                "sh", "-c", mounts, str(self.folder / "hosts"), *map(str, command)]

    def cut(self, name):
        """Pulls the host's plug."""
        self.run("nsenter", "--target", str(self.pids[name]), "--net", "--", "ip", "link", "set", "eth0", "down")

    def cut_at_switch(self, name):
        """The same at the other end of its cable: the host's own port stays up, with its addresses."""
        self.run(*self.inside, "ip", "link", "set", f"port{self.names.index(name)}", "down")

    def mend_at_switch(self, name):
        self.run(*self.inside, "ip", "link", "set", f"port{self.names.index(name)}", "up")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", type=int)
    parser.add_argument("--rate", help="what a host may send, as tc writes it: 1gbit")
    parser.add_argument("--flow-rate", help="what it may send over one TCP connection, as tc writes it")
    parser.add_argument("--switch", metavar="RATE:QUEUE", help="what the switch sends to a host, and for how long it keeps packets that wait")
    parser.add_argument("--on", help="the host whose network and name the command has; default: the machine's own")
    words = sys.argv[1:]
    if words == ["--possible"]:
        sys.exit(unavailable())
    split = words.index("--") if "--" in words else len(words)
    arguments, command = parser.parse_args(words[:split]), words[split + 1:]
    if not command:
        parser.error("no command to run: write it behind --")
    switch = arguments.switch.split(":") if arguments.switch else None
    if switch and len(switch) != 2:
        parser.error("--switch takes a rate and a time: 100mbit:50ms")
    reason = unavailable()
    if reason:
        sys.exit(f"namespace_hosts.py: {reason}; run it as root, or in a user namespace: unshare -r {shlex.join(sys.argv)}")
    with contextlib.suppress(KeyboardInterrupt), Hosts(arguments.hosts, arguments.rate, flow_rate=arguments.flow_rate, switch=switch) as hosts:
        environment = {**os.environ, "ENTER_HOST": hosts.enter}
        if arguments.on:
            command = hosts.head(arguments.on, command)
        code = subprocess.run(["setpriv", "--pdeathsig", "TERM", *command], env=environment).returncode
        sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
