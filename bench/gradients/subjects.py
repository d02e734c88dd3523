"""The subjects of bench/gradients and the command lines that start them, on this host or over hosts (namespace_hosts.Hosts)."""
import pathlib
import shlex
import socket
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
from contest import on_this_host, over_hosts  # noqa: E402

PACKAGE = HERE.parents[1] / "bindings/python"
PLAIN = ["aiacc", "aiacc-tuned", "ddp-aiacc", "ddp-gloo", "horovod", "horovod-0.1ms"]
FP16 = ["aiacc-fp16", "ddp-aiacc-fp16", "ddp-gloo-fp16", "horovod-fp16", "horovod-0.1ms-fp16"]
SUBJECTS = [*PLAIN, *FP16, "aiacc-dgc", "aiacc-overlap", "aiacc-local", "aiacc-local-delayed", "aiacc-local-gossip", "ddp-gloo-local"]
# Freed memory is used again, as by the allocators of accelerators: malloc would give gradients back to the kernel in each step, of
# some subjects and not of others.
ENVIRONMENT = ["OMP_NUM_THREADS=1", "PYTHONWARNINGS=ignore", "MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=4294967296"]


def is_horovod(subject):
    return subject.startswith("horovod")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def by_aiaccrun(options, subject, hosts, where):
    start = over_hosts("aiacc", hosts, where[0], where[1], options.prefix, ENVIRONMENT) if hosts else on_this_host("aiacc", where[1], options.prefix)
    environment = ["env", f"PYTHONPATH={PACKAGE}", f"AIACC_LIBRARY={options.prefix}/lib/libaiacc.so", "AIACC_ENCRYPT=none",
                   *ENVIRONMENT]
    if subject.startswith("aiacc-tuned"):
        environment += ["AIACC_TUNE=yes", "AIACC_TUNE_CACHE=none", "AIACC_LOG=collective=info"]
    return lambda what: [*environment, *start, options.python, HERE / "step.py", subject, *what]


def by_shell(python, subject, hosts, where):
    """Gloo's ranks find each other by torch's variables, and those of `none` do not."""
    def command(what):
        count, each = where if hosts else (1, where[1])
        port, lines = free_port(), []
        for rank in range(count * each):
            words = ["env", f"MASTER_ADDR={hosts.address(0) if hosts else '127.0.0.1'}", f"MASTER_PORT={port}",
                     f"WORLD_SIZE={count * each}", f"RANK={rank}", *ENVIRONMENT, *([] if not hosts else ["GLOO_SOCKET_IFNAME=eth0"]),
                     python, str(HERE / "step.py"), subject, *what]
            enter = [hosts.enter, hosts.names[rank // each]] if hosts else []
            lines.append(" ".join([*map(str, enter), *words]))
        script = "trap 'kill $(jobs -p)' TERM; " + " & ".join(lines) + " & wait"
        return hosts.head("h0", ["sh", "-c", script]) if hosts else ["sh", "-c", script]
    return command


def by_horovod(options, subject, hosts, where):
    """By horovodrun on this host; between hosts by horovod_world.py, because horovodrun wants ssh."""
    cycle = ["HOROVOD_CYCLE_TIME=0.1"] if "0.1ms" in subject else []
    environment = ["env", *ENVIRONMENT, *cycle]
    rank = [options.horovod, HERE / "step.py", subject.replace("-0.1ms", "")]
    if not hosts:
        run = pathlib.Path(options.horovod).with_name("horovodrun")
        return lambda what: [*environment, run, "--gloo", "-np", where[1], "-H", f"localhost:{where[1]}", *rank, *what]
    lines = [shlex.join([name, str(local), *map(str, [hosts.enter, name])]) for name in hosts.names for local in range(where[1])]
    world = ["WORLD=" + "\n".join(lines), f"WORLD_ADDRESS={hosts.address(0)}", "WORLD_DEVICE=eth0"]
    return lambda what: hosts.head("h0", [*environment, *world, options.horovod, HERE / "horovod_world.py", *rank, *what])


def find_subjects(options, hosts, where):
    """The command lines by subject, each a function of step.py's arguments behind the first. Those of `none` come first, one for each
    Python: each step has work that is no communication, and torch's versions differ in it."""
    subjects = {"none": by_shell(options.python, "none", hosts, where)}
    if options.horovod and any(map(is_horovod, options.subjects)):
        subjects["none-horovod"] = by_shell(options.horovod, "none", hosts, where)
    for subject in options.subjects:
        if is_horovod(subject):
            if options.horovod:
                subjects[subject] = by_horovod(options, subject, hosts, where)
        elif subject.startswith("ddp-gloo"):
            subjects[subject] = by_shell(options.python, subject, hosts, where)
        elif options.prefix:
            subjects[subject] = by_aiaccrun(options, subject, hosts, where)
    return subjects
