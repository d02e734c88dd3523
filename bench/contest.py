"""What benchmarks share: running a launcher of a contest so that none of its ranks is left behind, however it ends, and the
command lines of the contestants over hosts."""
import os
import signal
import subprocess
import sys

# A benchmark that is told to end takes what it started with it.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


# What can be measured, and busbw / algbw of each, with n ranks (nccl-tests' PERFORMANCE.md).
COLLECTIVES = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "broadcast": lambda n: 1,
    "reduce": lambda n: 1,
    "allgather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
}


def finish(command, limit):
    """(exit code, stdout, stderr) of `command`, or None if it took longer than `limit` seconds."""
    process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    try:
        out, err = process.communicate(timeout=limit)
        return process.returncode, out, err
    except BaseException as error:
        process.terminate()  # every launcher here ends its ranks on TERM; on KILL not all do
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return None


def place(text):
    """"2": ranks on this host; "4x1": hosts and ranks on each."""
    count, _, each = text.partition("x")
    return (int(count), int(each)) if each else (1, int(count))


def on_this_host(launcher, ranks, prefix=None):
    """How `launcher` (aiacc, openmpi, mpich) starts a program with so many ranks here; aiacc from the installed tree `prefix`."""
    if launcher == "aiacc":
        return [f"{prefix}/bin/aiaccrun", "-np", ranks]
    if launcher == "openmpi":
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return ["mpirun.openmpi", *as_root, "--oversubscribe", "-np", ranks]
    return ["mpiexec.hydra", "-np", ranks]


def over_hosts(launcher, hosts, count, each, prefix=None, settings=()):
    """How `launcher` (aiacc, openmpi, mpich) starts a program with `each` ranks on `count` of `hosts` (namespace_hosts.Hosts),
    from the first of them; aiacc from the installed tree `prefix`, with `settings` as in AIACC_X=1."""
    listed = ",".join(f"{name}:{each}" for name in hosts.names[:count])
    if launcher == "aiacc":
        words = [f"{prefix}/bin/aiaccrun", "--launch-agent", hosts.enter, "-H", listed]
        words += [word for setting in settings for word in ("-x", setting)]
    elif launcher == "openmpi":
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        # Without these Open MPI would look for one more way between its daemons and its ranks than there is.
        network = ["--mca", "oob_tcp_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0"]
        # UCX and others that tell hosts apart by the kernel's boot id would try shared memory between these.
        network += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
        # Each of these hosts takes the machine for its own: all would bind their first rank to the same core, and none would know
        # that there are more ranks than cores.
        cores = ["--bind-to", "none"]
        if count * each > len(os.sched_getaffinity(0)):
            cores += ["--mca", "mpi_yield_when_idle", "1"]
        words = ["mpirun.openmpi", *as_root, "--mca", "plm_rsh_agent", hosts.ssh, *network, *cores, "--oversubscribe", "-H", listed,
                 "-np", count * each]
    else:
        words = ["mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", hosts.ssh, "-iface", "eth0", "-hosts", listed, "-np",
                 count * each]
    return hosts.head(hosts.names[0], words)
