"""Tensors of another device than the CPU, which torch_device.cc makes of memory of the host: there is no GPU here."""
import subprocess

import pytest

from python_support import ENVIRONMENT, PACKAGE_PROGRAMS, PATIENCE_S, check_job, each_torch, torch_version


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    made = {}

    def of(python):
        if torch_version(python).startswith("1."):
            pytest.skip("torch_device.cc is written for torch 2.13, and torch 1 lacks what it uses")
        if python not in made:
            made[python] = tmp_path_factory.mktemp("device") / "device.so"
            subprocess.run([python, PACKAGE_PROGRAMS / "torch_device_support.py", made[python]], check=True, timeout=250)
        return made[python]
    return of


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("python", each_torch())
def test_tensors_of_another_device(python, ranks, library):
    check_job(python, ranks, "torch_device.py", str(library(python)))


@pytest.mark.parametrize("python", each_torch())
def test_between_hosts(launch, python, library):
    words = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    code, out, err = launch("h0:1,h1:1", "--quiet", "env", *words, python, PACKAGE_PROGRAMS / "torch_device.py", library(python)).finish(timeout=PATIENCE_S)
    assert (code, out) == (0, "all is well\n" * 2), f"exit code {code}\n{out}\n{err}"
