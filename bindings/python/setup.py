"""A wheel carries libaiacc, aiaccrun and the other programs, so that it needs neither a compiler nor `make install` where it is
installed. They are those that pkg-config finds when the wheel is built, or of the prefix whose lib/libaiacc.so AIACC_LIBRARY names;
nothing of them depends on the version of Python."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools < 70.1
    from wheel.bdist_wheel import bdist_wheel

NATIVE = "aiacc/_native"
PROGRAMS = {"aiaccrun": "main", "aiacc-info": "info", "aiacc-perf": "perf", "aiacc-tune": "tune"}  # and their functions of aiacc.run
# Every Linux of a glibc has these, or its desktop's hardware needs them; the others travel with us.
SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|udev|cap|selinux|xml2|z|lzma|icu.*|pciaccess|ltdl)\.so|ld-linux|linux-vdso")


def installed():
    """The folders of the library and of the programs: PREFIX/lib, or lib64, or a folder of lib, and PREFIX/bin; none if it is not found."""
    if named := os.environ.get("AIACC_LIBRARY"):
        folder = pathlib.Path(named).absolute().parent
        return folder, folder.parent / "bin"
    asked = [subprocess.run(["pkg-config", f"--variable={name}", "aiacc"], capture_output=True, text=True)
             for name in ("libdir", "bindir")] if shutil.which("pkg-config") else []
    if not asked or any(one.returncode != 0 for one in asked):
        return None
    return [pathlib.Path(one.stdout.strip()) for one in asked]


def is_binary(path):
    """And not a script that pip made of an earlier version of this package."""
    return path.exists() and path.read_bytes()[:4] == b"\x7fELF"


def scripts():
    """A command for each program, but where that would take the place of the program itself: pip as root, beside an aiacc in /usr/local."""
    found = installed()
    if found and any(is_binary(found[1] / name) for name in PROGRAMS) and found[1].resolve() == pathlib.Path(sysconfig.get_path("scripts")).resolve():
        return []
    return [f"{name} = aiacc.run:{function}" for name, function in PROGRAMS.items()]


def needed(program):
    """Libraries that it loads and that a system may lack."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [pathlib.Path(path) for name, path in re.findall(r"^\s*(\S+) => (/\S+)", listed, re.M) if not SYSTEM.match(name) and "aiacc" not in name]


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return  # it finds the installed library
        if not (found := installed()):
            sys.exit("aiacc: this package needs libaiacc, which pkg-config does not find: install aiacc first (make install), and let PKG_CONFIG_PATH "
                     "name PREFIX/lib/pkgconfig if it is not under /usr/local")
        (libraries, programs), target = found, pathlib.Path(self.build_lib, NATIVE)
        shutil.rmtree(target, ignore_errors=True)
        (target / "lib").mkdir(parents=True)
        (target / "bin").mkdir()
        library = (libraries / "libaiacc.so.0").resolve()
        shutil.copy2(library, target / "lib/libaiacc.so.0")
        beside = list((libraries / "aiacc").glob("*.so"))
        if beside:
            (target / "lib/aiacc").mkdir()
        for module in beside:
            shutil.copy2(module, target / "lib/aiacc" / module.name)
        binaries = [library, *beside]
        for program in PROGRAMS:
            if is_binary(programs / program):
                shutil.copy2(programs / program, target / "bin" / program)
                binaries.append(programs / program)
        for path in {path for binary in binaries for path in needed(binary)}:
            shutil.copy2(path.resolve(), target / "lib" / path.name)


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


os.chdir(pathlib.Path(__file__).parent)
# torch 2.5 and later load the first at `import torch`, so that init_process_group("aiacc") needs no import of ours.
register = ["aiacc = aiacc._torch_autoload:register"]
setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel}, distclass=WithLibrary,
      entry_points={"torch.backends": register, "torch.distributed.backends": register, "console_scripts": scripts()})
