"""horovod.run: a function on several new processes, the ranks of a job that aiaccrun starts."""
from __future__ import annotations

import multiprocessing.spawn
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence

from aiacc._horovod.calls import _pickler
from aiacc.run import program

# Of Horovod, and without a meaning here.
_IGNORED = ("slots", "cooldown_range", "start_timeout", "disable_cache", "use_gloo", "mpi_args", "network_interface",
            "network_interfaces", "verbose")
_REFUSED = ("use_mpi", "ssh_port", "ssh_identity_file", "output_filename")


def run(func: Callable[..., Any], args: Sequence[Any] = (), kwargs: Optional[Dict[str, Any]] = None, num_proc: int = 1,
        min_num_proc: Optional[int] = None, hosts: Optional[str] = None, hostfile: Optional[str] = None, executable: Optional[str] = None,
        np: Optional[int] = None, min_np: Optional[int] = None, max_num_proc: Optional[int] = None, max_np: Optional[int] = None,
        reset_limit: Optional[int] = None, host_discovery_script: Optional[str] = None, **others: Any) -> List[Any]:
    """The function's results, in the order of ranks. It is pickled, with cloudpickle where that is installed. Ranks on other hosts need
    the folder for temporary files (TMPDIR) of this one."""
    unknown = [name for name in others if name not in _IGNORED + _REFUSED]
    if unknown:
        raise TypeError(f"run() got an unexpected keyword argument '{unknown[0]}'")
    for name, value in others.items():
        if value is None or value is False:
            continue
        if name in _REFUSED:
            raise ValueError(f"{name} is not for aiaccrun: ssh is set up in ssh_config, and the output of ranks is aiaccrun's")
        warnings.warn(f"{name} has no effect: aiaccrun starts the ranks", stacklevel=2)
    if sum(one is not None for one in (hosts, hostfile, host_discovery_script)) > 1:
        raise ValueError("of hosts, hostfile and host_discovery_script more than one is given: leave out the others")
    launcher = program()
    if launcher is None:
        raise RuntimeError("aiaccrun is not found: install aiacc (make install), or add the folder of aiaccrun to PATH")
    ranks = np if np is not None else num_proc
    least = min_np if min_np is not None else min_num_proc
    most = max_np if max_np is not None else max_num_proc
    with tempfile.TemporaryDirectory(prefix="aiacc-run-") as folder:
        place = pathlib.Path(folder)
        (place / "function").write_bytes(pickle.dumps((_main_file(), _pickler.dumps((func, tuple(args), dict(kwargs or {}))))))
        command = [launcher, "-np", str(ranks), "--stdin", "none", "--provide", "horovod"]
        for option, value in (("--min-np", least), ("--max-np", most), ("--reset-limit", reset_limit),
                              ("--host-discovery-script", host_discovery_script)):
            command += [option, str(value)] if value is not None else []
        command += ["--host", hosts] if hosts is not None else ["--hostfile", hostfile] if hostfile is not None else []
        path = os.pathsep.join([str(pathlib.Path(__file__).resolve().parents[2]), *filter(None, sys.path)])
        code = subprocess.call([*command, executable or sys.executable, "-m", "aiacc._horovod.launch", folder], env={**os.environ, "PYTHONPATH": path})
        if code != 0:
            raise RuntimeError(f"the job of {ranks} ranks ended with exit code {code}")
        return [_result(place / f"result.{rank}", rank) for rank in range(ranks) if least is None or (place / f"result.{rank}").exists()]


def _main_file() -> Optional[str]:
    """The program's file, which ranks import where the function is known by its name only."""
    return None if _pickler is not pickle else getattr(sys.modules["__main__"], "__file__", None)


def _result(file: pathlib.Path, rank: int) -> Any:
    if not file.exists():
        raise RuntimeError(f"rank {rank} left no result in {file.parent}: ranks on other hosts need that folder, too")
    return pickle.loads(file.read_bytes())


def _main(folder: str) -> None:
    place = pathlib.Path(folder)
    main, pickled = pickle.loads((place / "function").read_bytes())
    if main is not None:
        multiprocessing.spawn.prepare({"init_main_from_path": os.path.abspath(main)})
    function, arguments, keywords = pickle.loads(pickled)
    result = function(*arguments, **keywords)
    (place / f"result.{os.environ['AIACC_RANK']}").write_bytes(_pickler.dumps(result))


if __name__ == "__main__":
    _main(sys.argv[1])
