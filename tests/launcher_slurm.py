"""A real Slurm on hosts of namespaces: its controller on the first, and each host a node of it. Programs have the names of Debian's packages."""
import subprocess
import time

import unpacked_packages
from launcher_support import AIACCRUN, Job

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins")
# Nodes say that they have more cores than the machine. Nothing is authenticated, and nothing kept: the network is the lab's own.
CONFIGURATION = """ClusterName=lab
SlurmctldHost={first}({address})
AuthType=auth/none
CredType=cred/none
SlurmUser=root
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node-%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/node-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
MailProg=/bin/true
KillWait=2
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def unpacked():
    """As unpacked_packages.unpacked(), where what is unpacked runs here."""
    root, reason = unpacked_packages.unpacked("slurm", PACKAGES, "usr/sbin/slurmctld-wlm")
    if root is None:
        return root, reason
    for program in ("usr/sbin/slurmctld-wlm", "usr/sbin/slurmd-wlm", "usr/bin/srun"):
        libraries = subprocess.run(["env", f"LD_LIBRARY_PATH={unpacked_packages.library_path(root)}", "ldd", root / program],
                                   capture_output=True, text=True)
        if libraries.returncode != 0 or "not found" in libraries.stdout:
            return None, f"{program} does not run here: {libraries.stderr.strip()} {libraries.stdout.strip()}"
    return root, None


class SlurmHosts:
    """Runs Slurm on the hosts of a lab."""

    def __init__(self, lab, folder, root):
        self.lab, self.folder, self.root = lab, folder, root
        self.daemons = []

    def __enter__(self):
        plugins = next(self.root.glob("usr/lib/*/slurm-wlm"))
        nodes = "\n".join(f"NodeName={name} NodeAddr={self.lab.address(number)} CPUs=4" for number, name in enumerate(self.lab.names))
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            first=self.lab.names[0], address=self.lab.address(0), plugins=plugins, folder=self.folder, nodes=nodes))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # of which nothing is asked
        for name in ("state", *(f"spool-{name}" for name in self.lab.names)):
            (self.folder / name).mkdir()
        self.env = {"SLURM_CONF": f"{self.folder}/slurm.conf", "LD_LIBRARY_PATH": unpacked_packages.library_path(self.root),
                    "PATH": f"{self.root}/usr/bin:{self.root}/usr/sbin:/usr/bin:/bin:/usr/sbin:/sbin"}
        try:
            self.daemon(self.lab.names[0], "slurmctld-wlm", "-D")
            for name in self.lab.names:
                self.daemon(name, "slurmd-wlm", "-D", "-N", name, "-d", self.root / "usr/sbin/slurmstepd-wlm")
            self.wait_for_nodes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.kill()  # the daemon itself ends with its host
        for daemon in self.daemons:
            daemon.wait()

    def daemon(self, host, program, *arguments):
        command = self.lab.on(host, ["env", *(f"{name}={value}" for name, value in self.env.items()), program, *arguments])
        with open(self.folder / f"{program}-{host}.out", "wb") as log:
            self.daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def wait_for_nodes(self):
        until = time.monotonic() + 60
        while self.output(["sinfo", "-h", "-o", "%T"]).split() != ["idle"]:
            if any(daemon.poll() is not None for daemon in self.daemons) or time.monotonic() > until:
                raise RuntimeError("Slurm did not start: " + "\n".join(log.read_text() for log in self.folder.glob("*.out")))
            time.sleep(0.1)

    def command(self, words):
        """The command line that runs `words` on the first host, as a user of Slurm would."""
        return self.lab.head(self.lab.names[0], ["env", *(f"{name}={value}" for name, value in self.env.items()), *words])

    def output(self, words):
        return subprocess.run(self.command(words), capture_output=True, text=True, timeout=60).stdout

    def job(self, allocation, *arguments, tell_process=False, **kwargs):
        """aiaccrun in an allocation of its own, which is described as salloc's options do. `tell_process`: its id is its first line."""
        told = ["sh", "-c", 'echo $$; exec "$@"', "sh"] if tell_process else []
        return Job(arguments, before=self.command(["salloc", "--quiet", *allocation, *told]), **kwargs)

    def on(self, name, script):
        subprocess.run(self.lab.on(name, ["sh", "-c", script]), check=True)

    def signal_node(self, name, signal):
        """To the daemon of a node, whose process id is that of the host's own namespace."""
        self.on(name, f"kill -{signal} $(cat {self.folder}/node-{name}.pid)")

    def batch(self, options, script):
        """What a batch script prints, and aiaccrun in it."""
        (self.folder / "batch").write_text("#!/bin/sh\n" + script.format(aiaccrun=AIACCRUN))
        output = self.folder / "batch.out"
        output.write_text("")
        subprocess.run(self.command(["sbatch", "--quiet", "--wait", f"--output={output}", *options, self.folder / "batch"]),
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=200)
        return output.read_text()
