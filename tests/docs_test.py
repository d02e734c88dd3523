"""What the documents promise is there: every command of README and CONTRIBUTING is executed by CI or here, every link
leads somewhere, and the lists of dependencies and jobs agree with what is used."""
import os
import pathlib
import re
import shlex
import subprocess

import pytest

import namespace_hosts

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
STAGE = pathlib.Path(os.environ["AIACC_STAGE"])
BUILD = pathlib.Path(os.environ["AIACC_BUILD"])
DOCUMENTS = ["README.md", "CONTRIBUTING.md"]
# What makes a benchmark of docs/performance.md as short as it can be: the last of two equal options holds.
SHORTEST = {
    "host": "--peers none --ranks 2 --rounds 1 --largest 8",
    "hosts": "--peers none --hosts 2 --rates none --rounds 1 --largest 8",
    "networks": "--peers none --wires tcp --rounds 1 --scale 0.001",
    "launch": "--np 2 --repeat 1 --limit 30",
    "outstanding": "--peers none --hosts 1 --counts 1 --rounds 1 --late 1",
    "windows": "--peers none --kinds stream,both,pingpong,sendrecv,exchange --sizes 8,131072 --messages 2 --loops 2 --rounds 1 --turns 1",
    "overlap": "--peers none --ranks 2 --sizes 8 --seconds 0.1",
    "gradients": f"--subjects aiacc-overlap,aiacc-local-gossip --rates none --places 2 --models resnet50 --compute 0 --forward 0.01 --steps 1 --warmup 2 --rounds 1 --python {shlex.quote(str(BUILD / 'torch-venv/bin/python'))}",
    "gradient-engine": "--models resnet50 --compute 0.01 --rounds 1 --steps 1",
    "gradient-priorities": "--model resnet50 --rate 10gbit --compute 0.01 --warmup 1 --steps 1",
    "softmax": f"--places 2x1 --classes 999 --steps 1 --rounds 1 --python {shlex.quote(str(BUILD / 'torch-venv/bin/python'))}",
    "rows": f"--places 2 --tables 100x4:10 --steps 2 --rounds 1 --python {shlex.quote(str(BUILD / 'torch-venv/bin/python'))}",
    "tensorflow": f"--subjects tape --places 2 --compute 0.01 --steps 1 --warmup 2 --rounds 1 --python {shlex.quote(str(BUILD / 'tensorflow-venv/bin/python'))}",
    "kvstore": "--mxnet '' --places 1x2 --settings plain,sgd --sizes 1K --rounds 1",
    "syncbn": f"--program {shlex.quote(str(BUILD / 'bench_syncbn'))} --places 2 --channels 8 --calls 10 --rounds 1 --python {shlex.quote(str(BUILD / 'torch-venv/bin/python'))}",
}

# Benchmarks whose program has another name than `run` in a folder of theirs.
OTHER_PROGRAMS = {"gradient-engine": "gradients/overhead", "gradient-priorities": "gradients/priorities"}

# Executed before any job, or it could not run: it installs make and git themselves.
BEFORE_CI = {"apt-get install -y make git"}


def commands(document):
    for block in re.findall(r"^```sh\n(.*?)^```", (SOURCE / document).read_text(), re.S | re.M):
        for line in block.splitlines():
            command = re.sub(r"\s+#.*", "", line).strip()
            if command:
                yield command


def need_checkout():
    if not (SOURCE / ".ci").is_dir():
        pytest.skip("a release tarball has no front door and no .ci")


@pytest.mark.parametrize("document, command", [(d, c) for d in DOCUMENTS for c in commands(d)])
def test_ci_executes_each_documented_command(document, command):
    need_checkout()
    executed = {line.strip() for job in (SOURCE / ".ci/jobs").iterdir() for line in job.read_text().splitlines()}
    assert command in executed | BEFORE_CI


def installed_commands():
    """Those of installed programs that need nothing else, which stand in the text as indented lines."""
    return re.findall(r"^    (aiacc-\w+ .*|aiaccrun .*\baiacc-\w+ .*)$", (SOURCE / "README.md").read_text(), re.M)


def test_there_are_commands_of_installed_programs():
    assert {re.search(r"aiacc-\w+", command)[0] for command in installed_commands()} == {"aiacc-info", "aiacc-perf"}


@pytest.mark.parametrize("command", installed_commands())
def test_documented_command_of_an_installed_program(command, tmp_path):
    if not (STAGE / "bin/aiaccrun").exists():
        pytest.skip("not part of this build")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIACC_")}
    environment["PATH"] = f"{STAGE}/bin:{environment['PATH']}"
    run = subprocess.run(shlex.split(command), env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    found_something = run.returncode == 1 and "--doctor" in command
    assert (run.returncode == 0 or found_something) and run.stdout and run.stderr == "", run.stderr
    for picture in re.findall(r"\S+\.svg", command):
        assert (tmp_path / picture).exists()


BENCHMARKS = re.findall(r'^    make bench-([\w-]+)(?: BENCH_FLAGS="([^"]*)")?(?: +#.*)?$', (SOURCE / "docs/performance.md").read_text(), re.M)


def program_of(name):
    return SOURCE / "bench" / OTHER_PROGRAMS.get(name, f"{name}/run")


def test_each_benchmark_has_its_command():
    assert {name for name, _ in BENCHMARKS} == set(SHORTEST)


@pytest.mark.parametrize("name, flags", BENCHMARKS)
def test_a_benchmark_knows_the_options_of_its_command(name, flags):
    usage = subprocess.run([program_of(name), "--help"], capture_output=True, text=True, timeout=60).stdout
    unknown = [word for word in shlex.split(flags) if word.startswith("--") and not re.search(rf"(?<![\w-]){word}(?![\w-])", usage)]
    assert usage and not unknown, unknown


# Once, and once more between hosts if its shortest way does not say on how many.
ONCE = {(name, "--hosts" in flags and "--hosts" not in SHORTEST.get(name, "")): (name, flags) for name, flags in reversed(BENCHMARKS)}


@pytest.mark.parametrize("name, flags", ONCE.values())
def test_a_benchmark_of_the_figures_runs(name, flags):
    between_hosts = name in ("hosts", "networks", "gradient-priorities", "softmax", "syncbn") or "--hosts 2" in flags
    if between_hosts and namespace_hosts.unavailable():
        pytest.skip(str(namespace_hosts.unavailable()))
    if name in ("gradients", "rows", "softmax", "syncbn") and not (BUILD / "torch-venv").exists():
        pytest.skip("needs `make torch-venv`")
    if name == "tensorflow" and not (BUILD / "tensorflow-venv").exists():
        pytest.skip("needs `make tensorflow-venv`")
    if not (STAGE / "include/aiacc/aiacc.h").exists() or not (SOURCE / "bench/host/run").exists():
        pytest.skip("not part of this build")
    words = [program_of(name), STAGE, *shlex.split(flags), *shlex.split(SHORTEST[name])]
    run = subprocess.run(words, capture_output=True, text=True, timeout=400)  # the longest takes 40 s where others have both cores
    assert run.returncode == 0 and re.search(r"\d\.\d", run.stdout), run.stdout + run.stderr


def test_each_job_of_the_table_exists_and_no_other():
    need_checkout()
    table = re.findall(r"^\| `([a-z0-9-]+)` \| (\d+) \|", (SOURCE / "CONTRIBUTING.md").read_text(), re.M)
    assert {name for name, _ in table} == {job.name for job in (SOURCE / ".ci/jobs").iterdir()}
    assert sum(int(minutes) for _, minutes in table) <= 60


def test_each_dependency_has_its_sentence_and_no_other():
    listed = [line.split()[0] for line in (SOURCE / "dependencies.debian").read_text().splitlines()
              if line and line[0] not in "#["]
    described = re.findall(r"^\| ([a-z0-9.+-]+) \| (?!what for)", (SOURCE / "docs/dependencies.md").read_text(), re.M)
    assert sorted(listed) == sorted(described)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_link_leads_to_a_file(document):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", (SOURCE / document).read_text()):
        assert (SOURCE / target).exists(), target


def test_the_first_program_is_that_of_the_manual():
    """Which tests/abi_manual_test.py compiles and runs."""
    program = re.search(r"^```c\n(.*?)^```", (SOURCE / "README.md").read_text(), re.S | re.M)[1]
    assert program.replace("\\", "\\e") in (SOURCE / "man/aiacc.7").read_text()


def test_the_two_commands_are_on_the_first_screen():
    first_screen = (SOURCE / "README.md").read_text().splitlines()[:24]
    assert {"make demo", "make check"} <= {re.sub(r"\s+#.*", "", line) for line in first_screen}
