"""The Python package aiacc without a framework: ranks, what import does, how the library is found, and its wheel."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from launcher_support import STAGE, as_user, users
from python_support import ENVIRONMENT, PACKAGE, SOURCE, check_job, each_torch, python_job

PYTHON = "/usr/bin/python3"
QUIET = {"AIACC_LOG": "error"}  # the ranks disagree on purpose


def python(program, *, user="self", interpreter=PYTHON, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIACC_")}
    return subprocess.run([*as_user(user), interpreter, "-c", program], env={**environment, **ENVIRONMENT, **variables}, cwd="/", stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("user", users())
def test_core(user, ranks):
    check_job(PYTHON, ranks, "python_core.py", user=user, env=QUIET)


@pytest.mark.parametrize("ranks", [1, 2])
def test_arguments_of_the_wrong_type(ranks):
    check_job(PYTHON, ranks, "python_arguments.py")


@pytest.mark.parametrize("with_torch", each_torch())
def test_core_with_numpy(with_torch):
    if subprocess.run([with_torch, "-c", "import numpy"], capture_output=True).returncode != 0:
        pytest.skip("it has no numpy")
    check_job(with_torch, 2, "python_core.py", "numpy", env=QUIET)


def test_import_starts_nothing_and_needs_no_framework():
    program = """
import os, sys
before = len(os.listdir("/proc/self/task"))
import aiacc
assert len(os.listdir("/proc/self/task")) == before
assert "libaiacc" not in open("/proc/self/maps").read(), "loaded before it is needed"
heavy = {"torch", "numpy", "asyncio", "multiprocessing"} & set(sys.modules)
assert not heavy, heavy
"""
    done = python(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


STRICT_USER = """
# mypy: disallow-untyped-calls, disallow-untyped-decorators, disallow-any-generics, no-implicit-reexport, warn-return-any
import torch
import aiacc
import aiacc.torch as hvd
from aiacc.torch import Compression, SyncBatchNorm
hvd.init()
model = torch.nn.Sequential(torch.nn.Linear(2, 3), SyncBatchNorm(3))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), compression=Compression.fp16, op=hvd.Average)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, 0)
mean = hvd.allreduce(torch.ones(3), name="loss")
reveal_type(mean)
hvd.synchronize(hvd.allreduce_async_(mean))
aiacc.WORLD.allreduce(bytearray(8), dtype=aiacc.DType.FLOAT32)
reveal_type(aiacc.WORLD.rank)
"""


@pytest.mark.parametrize("options, kinds", [(["--no-site-packages"], ["Any", "int"]), ([], ["torch._tensor.Tensor", "int"])],
                         ids=["without frameworks", "with torch"])
def test_annotations(options, kinds, tmp_path):
    """mypy finds nothing in the package, nor, with stricter options, in a script that uses it."""
    build = pathlib.Path(os.environ["AIACC_BUILD"])
    mypy = build / "torch-venv/bin/mypy"
    if not mypy.exists():
        pytest.skip("no mypy: a new environment of `make torch-venv' has it")
    (tmp_path / "user.py").write_text(STRICT_USER)
    done = subprocess.run([mypy, "--cache-dir", build / "mypy-cache", *options, "aiacc", tmp_path / "user.py"], cwd=PACKAGE, capture_output=True,
                          text=True, timeout=250)
    assert done.returncode == 0 and re.findall('type is "(.*)"', done.stdout) == kinds, done.stdout + done.stderr


def test_a_missing_framework_is_one_sentence():
    done = python("import sys; sys.modules['torch'] = None\nimport aiacc.torch")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: aiacc.torch needs PyTorch, which is not installed for this Python: ")


def test_a_missing_library_is_one_sentence(tmp_path):
    done = python("import aiacc; aiacc.init()", AIACC_LIBRARY=str(tmp_path / "libaiacc.so"))
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: libaiacc is not found (AIACC_LIBRARY: ") and str(tmp_path) in last
    done = python("import aiacc; aiacc.init()", AIACC_LIBRARY="", PKG_CONFIG_LIBDIR=str(tmp_path))
    found = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, env={"PATH": "/usr/sbin:/sbin:/usr/bin"}).stdout
    if "libaiacc.so.0" not in found:
        assert "ImportError: libaiacc is not found (the loader's path: libaiacc.so.0: " in done.stderr.splitlines()[-1]


def test_a_library_of_another_version_is_refused(tmp_path):
    (tmp_path / "other.c").write_text('const char* aiacc_version(void) { return "0.9.1"; }\n')
    library = tmp_path / "libaiacc.so.0"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "other.c", "-o", library], check=True)
    done = python("import aiacc; aiacc.version()", AIACC_LIBRARY=str(library))
    version = re.search(r'__version__ = "(.*)"', (PACKAGE / "aiacc/_version.py").read_text())[1]
    assert done.stderr.splitlines()[-1] == (f"ImportError: {library} (AIACC_LIBRARY) is libaiacc 0.9.1, and this Python package is for {version}: "
                                            "install both from one release")
    (tmp_path / "other.c").write_text(f'const char* aiacc_version(void) {{ return "{version}"; }}\n')
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "other.c", "-o", library], check=True)
    last = python("import aiacc; aiacc.version()", AIACC_LIBRARY=str(library)).stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {library} is older than this Python package (") and "undefined symbol: aiacc_" in last


def test_pkg_config_tells_where_the_library_is(tmp_path):
    described = re.sub(r"^prefix=.*", f"prefix={STAGE}", (STAGE / "lib/pkgconfig/aiacc.pc").read_text(), flags=re.M)
    (tmp_path / "aiacc.pc").write_text(described)
    done = python("import aiacc, aiacc.run; aiacc.version(); print(aiacc._library.library()._name, aiacc.run.program())", AIACC_LIBRARY="",
                  PKG_CONFIG_PATH=str(tmp_path))
    assert done.stdout.split() == [str(STAGE / "lib/libaiacc.so.0"), str(STAGE / "bin/aiaccrun")], done.stderr


def test_the_version_is_that_of_the_library():
    done = python("import aiacc; print(aiacc.version() == aiacc.__version__)")
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("end, call", [("raise KeyError('this one')", "barrier()"), ("raise KeyError('this one')", "recv(bytearray(1), 1)"),
                                       ("sys.exit('this one')", "barrier()")])
def test_a_rank_that_ends_too_early_fails_the_job_and_no_other_hangs(end, call):
    program = f"import aiacc, sys; aiacc.init(); aiacc.WORLD.barrier()\nif aiacc.rank() == 1: {end}\naiacc.WORLD.{call}"
    code, _, err = python_job(PYTHON, 3, program, env=QUIET)
    assert code == 1 and "this one" in err


@pytest.mark.parametrize("end, block", [("sys.exit(3)", "if True"), ("(lambda: sys.exit(3))()", "if True"),
                                        ("sys.exit(3)", "with contextlib.ExitStack()")])
def test_sys_exit_with_a_failure_ends_the_job_with_it(end, block):
    """At once: the others wait for what this rank will never do."""
    program = f"""
import aiacc, contextlib, sys
aiacc.init()
aiacc.WORLD.barrier()
{block}:
    if aiacc.rank() == 1: {end}
    aiacc.WORLD.recv(bytearray(1), 1)
"""
    code, _, err = python_job(PYTHON, 2, program, env=QUIET)
    assert code == 3 and "rank 1 on host " in err.splitlines()[-1] and "exited with status 3" in err.splitlines()[-1], err


@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit()", "try: sys.exit(3)\nexcept SystemExit: pass",
                                 "def main():\n try: sys.exit(3)\n except SystemExit: return 0\nsys.exit(main())",
                                 "try: sys.exit(3)\nexcept SystemExit: pass\nraise SystemExit(0)",
                                 "thread = threading.Thread(target=sys.exit, args=(3,)); thread.start(); thread.join()"])
def test_other_ends_by_sys_exit_leave_in_order(end):
    code, out, err = python_job(PYTHON, 2, f"import aiacc, sys, threading; aiacc.init()\nprint('all is well', flush=True)\n{end}", env=QUIET)
    assert (code, out, err) == (0, "all is well\n" * 2, "")


def test_a_forked_child_is_no_rank_and_leaves_the_parent_alone():
    program = """
import aiacc, os, sys
aiacc.init()
if os.fork() == 0:
    try: aiacc.WORLD.barrier()
    except aiacc.InvalidState as error: sys.exit(0 if "fork" in str(error) else 2)
    sys.exit(3)
assert os.wait()[1] == 0
aiacc.WORLD.barrier()
print("all is well")
"""
    check_job(PYTHON, 2, program)


def test_through_a_store_of_the_callers(tmp_path):
    """Ranks without aiaccrun: rank, size and a store are arguments."""
    program = """
import aiacc, os, pathlib, sys, time
class Store:
    def __init__(self, folder): self.folder = pathlib.Path(folder)
    def set(self, key, value):
        new = self.folder / f"new-{os.getpid()}"
        new.write_bytes(value); new.rename(self.folder / key.replace("/", "_"))
    def get(self, key):
        path = self.folder / key.replace("/", "_")
        while not path.exists(): time.sleep(0.01)
        return path.read_bytes()
aiacc.init(rank=int(sys.argv[1]), size=2, store=Store(sys.argv[2]), timeout=60)
aiacc.WORLD.barrier()
print(aiacc.rank(), aiacc.size())
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIACC_")}
    ranks = [subprocess.Popen([PYTHON, "-c", program, str(rank), tmp_path], env={**environment, **ENVIRONMENT}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for rank in range(2)]
    assert [(*rank.communicate(timeout=100), rank.returncode) for rank in ranks] == [("0 2\n", "", 0), ("1 2\n", "", 0)]


@pytest.mark.parametrize("interpreter", [PYTHON, *filter(None, [os.environ.get("TORCH_PYTHON")])])
def test_processes_of_multiprocessing_leave_the_job_in_order_unless_they_fail(interpreter):
    """Before Python 3.13 they run no exit functions, and later their exception is over by then. A job of one rank each."""
    program = """
import multiprocessing, os, sys
def run(end):
    import aiacc.runtime
    aiacc.init()
    original = aiacc.runtime.finalize
    aiacc.runtime.finalize = lambda: (original(), print(end, "in order", flush=True))
    sys.stderr = open(os.devnull, "w")
    exec(end)
for end in ("pass", "sys.exit(0)", "sys.exit(1)", "raise ValueError"):
    rank = multiprocessing.Process(target=run, args=(end,))
    rank.start()
    rank.join()
    print(end, rank.exitcode, flush=True)
"""
    done = python(program, interpreter=interpreter)
    assert (done.stdout, done.stderr) == ("pass in order\npass 0\nsys.exit(0) in order\nsys.exit(0) 0\nsys.exit(1) 1\nraise ValueError 1\n", "")


def have(*modules):
    return subprocess.run([PYTHON, "-c", f"import {', '.join(modules)}"], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from an sdist, with the library of the stage."""
    if not have("setuptools", "wheel", "pip", "venv", "ensurepip"):
        pytest.skip("python3-setuptools, python3-wheel, python3-pip and python3-venv build the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(SOURCE / "bindings/python", folder / "source", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    described = re.sub(r"^prefix=.*", f"prefix={STAGE}", (STAGE / "lib/pkgconfig/aiacc.pc").read_text(), flags=re.M)
    (folder / "aiacc.pc").write_text(described)
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith(("AIACC_", "PYTHON", "PIP_"))},
                   "PKG_CONFIG_PATH": str(folder)}
    subprocess.run([PYTHON, "-c", "from setuptools import build_meta; build_meta.build_sdist('dist')"], cwd=folder / "source", check=True,
                   env=environment, capture_output=True)
    sdist, = (folder / "source/dist").glob("*.tar.gz")
    subprocess.run([PYTHON, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder, sdist], check=True,
                   env=environment, cwd=folder)
    made, = folder.glob("*.whl")
    return made


def test_a_wheel_bundles_library_and_launcher(wheel, tmp_path):
    assert re.fullmatch(r"aiacc-[0-9.]+-py3-none-linux_\w+\.whl", wheel.name)
    subprocess.run([PYTHON, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    clean = {"PATH": "/usr/bin:/bin", "PKG_CONFIG_LIBDIR": str(tmp_path)}
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", wheel], check=True, env=clean)
    program = "import aiacc; aiacc.init(); print(aiacc._library.library()._name)"
    done = subprocess.run([python, "-m", "aiacc.run", "--quiet", "-np", "2", python, "-c", program], env=clean, cwd="/", capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    places = set(done.stdout.splitlines())
    assert len(places) == 1 and places.pop().endswith("site-packages/aiacc/_native/lib/libaiacc.so.0")
    program = "import horovod, perseus, sys; print(horovod.__file__, perseus.__file__, sys.meta_path[0].find_spec.__globals__['_FOLDER'])"
    done = subprocess.run([python.with_name("aiaccrun"), "--quiet", "-np", "1", "--provide", "gloo,horovod,perseus", python, "-c", program], env=clean,
                          cwd="/", capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.count("site-packages/aiacc/provide/") == 3
    loaded = subprocess.run(["ldd", next((tmp_path / "venv").glob("lib/*/site-packages/aiacc/_native/bin/aiaccrun"))], capture_output=True, text=True).stdout
    assert all("_native" in line for line in loaded.splitlines() if re.search("hwloc|sodium|boost", line)), loaded
    for name in ("aiacc-info", "aiacc-perf", "aiacc-tune"):
        done = subprocess.run([python.with_name(name), "--version"], env=clean, cwd="/", capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert (done.returncode, done.stdout.split()[0]) == (0, name), done.stderr


def test_pip_makes_no_command_in_place_of_an_installed_program(tmp_path):
    """Where `make install` and pip use one folder, the program itself stays."""
    if not have("setuptools", "wheel", "venv"):
        pytest.skip("python3-setuptools, python3-wheel and python3-venv make the package")
    subprocess.run([PYTHON, "-m", "venv", "--system-site-packages", "--without-pip", tmp_path / "venv"], check=True)
    shutil.copytree(SOURCE / "bindings/python", tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "*-venv"))
    described = (STAGE / "lib/pkgconfig/aiacc.pc").read_text()
    program = tmp_path / "venv/bin/aiaccrun"
    commands = {}
    for content in (None, "#!/bin/sh\nfrom aiacc.run import main\n", (STAGE / "bin/aiaccrun").read_bytes()):
        if content is not None:
            program.write_bytes(content if isinstance(content, bytes) else content.encode())
        (tmp_path / "aiacc.pc").write_text(re.sub(r"^prefix=.*", f"prefix={tmp_path}/venv", described, flags=re.M))
        subprocess.run([tmp_path / "venv/bin/python", "setup.py", "-q", "egg_info"], cwd=tmp_path / "source", check=True, capture_output=True,
                       env={"PATH": "/usr/bin:/bin", "PKG_CONFIG_LIBDIR": str(tmp_path)})
        commands[content] = "aiaccrun = aiacc.run:main" in (tmp_path / "source/aiacc.egg-info/entry_points.txt").read_text()
    assert list(commands.values()) == [True, True, False]


def test_a_wheel_needs_an_installed_library(tmp_path):
    """Or says so, in one sentence."""
    if not have("setuptools", "wheel", "pip"):
        pytest.skip("python3-setuptools, python3-wheel and python3-pip build the wheel")
    shutil.copytree(SOURCE / "bindings/python", tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    done = subprocess.run([PYTHON, "setup.py", "-q", "bdist_wheel"], cwd=tmp_path / "source", capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", "PKG_CONFIG_LIBDIR": str(tmp_path)})
    assert done.returncode == 1 and "aiacc: this package needs libaiacc, which pkg-config does not find: install aiacc first" in done.stderr


def test_libraries_may_be_in_lib64(tmp_path):
    """As on Fedora and openSUSE, whose configure is told so. A wheel finds library and programs, and so does the installed package."""
    if not have("setuptools", "wheel"):
        pytest.skip("python3-setuptools and python3-wheel build the wheel")
    (tmp_path / "bin").symlink_to(STAGE / "bin")
    (tmp_path / "lib64").symlink_to(STAGE / "lib")
    described = re.sub(r"^prefix=.*", f"prefix={tmp_path}", (STAGE / "lib/pkgconfig/aiacc.pc").read_text(), flags=re.M)
    (tmp_path / "aiacc.pc").write_text(described.replace("${prefix}/lib", "${prefix}/lib64"))
    shutil.copytree(SOURCE / "bindings/python", tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    subprocess.run([PYTHON, "setup.py", "-q", "build_py", "--build-lib", tmp_path / "built"], cwd=tmp_path / "source", check=True, capture_output=True,
                   env={"PATH": "/usr/bin:/bin", "PKG_CONFIG_LIBDIR": str(tmp_path)})
    assert all((tmp_path / "built/aiacc/_native" / name).exists() for name in ("lib/libaiacc.so.0", "bin/aiaccrun"))
    shutil.copytree(STAGE / "share/aiacc/python", tmp_path / "share/aiacc/python")
    done = subprocess.run([PYTHON, "-c", "import aiacc; print(aiacc._library.library()._name)"], cwd="/", capture_output=True, text=True,
                          env={"PATH": "/nowhere", "PYTHONPATH": str(tmp_path / "share/aiacc/python")})
    assert done.stdout == f"{tmp_path}/lib64/libaiacc.so.0\n", done.stderr


def test_run_without_aiaccrun_is_one_sentence(tmp_path):
    done = subprocess.run([PYTHON, "-m", "aiacc.run", "-np", "1", "true"], cwd="/", capture_output=True, text=True,
                          env={"PATH": str(tmp_path), "PYTHONPATH": str(PACKAGE), "PKG_CONFIG_LIBDIR": str(tmp_path)})
    assert done.returncode == 127 and done.stderr.startswith("aiacc.run: aiaccrun is not found: ") and done.stderr.count("\n") == 1
    # Nor does a command that pip made start itself.
    command = tmp_path / "aiaccrun"
    command.write_text(f"#!{shutil.which(PYTHON)}\nimport sys\nfrom aiacc.run import main\nsys.exit(main())\n")
    command.chmod(0o755)
    again = subprocess.run([command, "-np", "1", "true"], cwd="/", capture_output=True, text=True, timeout=100,
                           env={"PATH": str(tmp_path), "PYTHONPATH": str(PACKAGE), "PKG_CONFIG_LIBDIR": str(tmp_path)})
    assert (again.returncode, again.stderr) == (127, done.stderr)


def test_run_is_aiaccrun():
    done = subprocess.run([PYTHON, "-m", "aiacc.run", "--version"], cwd="/", capture_output=True, text=True,
                          env={"PATH": f"{STAGE}/bin:/usr/bin:/bin", "PYTHONPATH": str(PACKAGE), "PKG_CONFIG_LIBDIR": "/nowhere"})
    direct = subprocess.run([STAGE / "bin/aiaccrun", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, direct.stdout)


def test_modules_compile_on_the_oldest_python_that_is_supported():
    """By their syntax: 3.8's."""
    import ast
    for path in sorted(pathlib.Path(PACKAGE).rglob("*.py")):
        ast.parse(path.read_text(), str(path), feature_version=(3, 8))
    assert sys.version_info >= (3, 8)
