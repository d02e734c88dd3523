"""What is installed works where it was put, also when that is not the place that configure was told."""
import os
import pathlib
import subprocess

STAGE = pathlib.Path(os.environ["AIACC_STAGE"])


def test_pkg_config_tells_where_it_was_installed(tmp_path):
    here = tmp_path / "here"
    subprocess.run(["make", "-C", os.environ["AIACC_BUILD"], "install-data-local", f"prefix={here}"], capture_output=True, check=True)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "aiacc"], env={**os.environ, "PKG_CONFIG_PATH": f"{here}/lib/pkgconfig"},
                           capture_output=True, text=True, check=True).stdout
    assert flags.split() == [f"-I{here}/include", f"-L{here}/lib", "-laiacc"]


def test_the_example_finds_its_data(tmp_path):
    """The stage is /usr/local moved to another folder."""
    run = subprocess.run([STAGE / "bin/aiaccrun", "-np", "1", STAGE / "bin/aiacc-digits", "--epochs", "1"], cwd=tmp_path,
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
