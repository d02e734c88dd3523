"""horovod_world.py COMMAND...: starts a job of Horovod whose ranks are given by the environment variable WORLD, one line for each rank:
its host's name, its rank on the host, and the words that enter the host. What horovodrun does with Gloo, but for ssh: the rendezvous
server runs here, at the address and network device named by WORLD_ADDRESS and WORLD_DEVICE. Ends with the first exit code that is not 0."""
import os
import shlex
import signal
import subprocess
import sys

from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.gloo_run import create_slot_env_vars
from horovod.runner.http.http_server import RendezvousServer


def main():
    lines = [shlex.split(line) for line in os.environ["WORLD"].splitlines()]
    names = list(dict.fromkeys(line[0] for line in lines))
    hosts = ",".join(f"{name}:{sum(line[0] == name for line in lines)}" for name in names)
    slots = get_host_assignments(parse_hosts(hosts), len(lines))
    server = RendezvousServer(False)
    port = server.start()
    server.init(slots)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("HOROVOD_", "OMP_", "MALLOC_", "PYTHON"))}
    common = dict(kept, HOROVOD_GLOO_RENDEZVOUS_ADDR=os.environ["WORLD_ADDRESS"], HOROVOD_GLOO_RENDEZVOUS_PORT=str(port),
                  HOROVOD_CONTROLLER="gloo", HOROVOD_CPU_OPERATIONS="gloo", HOROVOD_GLOO_IFACE=os.environ["WORLD_DEVICE"])
    entering = {(line[0], int(line[1])): line[2:] for line in lines}
    # As words, because who enters a host has the environment of a login.
    ranks = [subprocess.Popen([*entering[slot.hostname, slot.local_rank], "env",
                               *(f"{name}={value}" for name, value in {**common, **create_slot_env_vars(slot)}.items()), *sys.argv[1:]])
             for slot in slots]

    def end(*_):
        for rank in ranks:
            rank.kill()
        os._exit(1)
    signal.signal(signal.SIGTERM, end)
    codes = [rank.wait() for rank in ranks]
    sys.stdout.flush()
    os._exit(next((code for code in codes if code), 0))  # the server's thread never ends


main()
