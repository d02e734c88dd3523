"""A real sshd on hosts of namespaces."""
import os
import pathlib
import shlex
import shutil
import subprocess
import time

import unpacked_packages
from launcher_support import Job

PACKAGES = ("openssh-server", "libwrap0", "libnsl2", "libtirpc3")


def unpacked():
    """As unpacked_packages.unpacked()."""
    if not shutil.which("ssh") or not shutil.which("ssh-keygen"):
        return None, "no ssh client here (Debian package openssh-client)"
    return unpacked_packages.unpacked("sshd", PACKAGES, "usr/sbin/sshd")


class SshHosts:
    """Runs sshd on the hosts of a lab and gives a launcher on its first host an ssh that may log in there."""

    def __init__(self, lab, folder, root):
        self.lab, self.folder, self.root = lab, folder, root
        self.daemons = []

    def __enter__(self):
        self.key("user")
        for name in self.lab.names:
            self.key(name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.known = self.folder / "known_hosts"
        self.configuration = self.folder / "ssh_config"
        self.write_client(user_key="user", known=self.lab.names)
        (self.bin / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.configuration} "$@"\n')
        (self.bin / "ssh").chmod(0o755)
        for name in self.lab.names:
            self.start(name)
        return self

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()

    def key(self, name):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / f"{name}_key"], check=True)

    def write_client(self, user_key, known, key_of=None):
        """`known`: whose keys the user knows; `key_of`: by another host's key instead of their own."""
        lines = [f"{name} {(self.folder / f'{key_of or name}_key.pub').read_text()}" for name in known]
        self.known.write_text("".join(lines))
        self.configuration.write_text(
            f"UserKnownHostsFile {self.known}\nGlobalKnownHostsFile /dev/null\nIdentitiesOnly yes\nIdentityAgent none\n"
            f"IdentityFile {self.folder / f'{user_key}_key'}\nSendEnv TEST_JOB_MARK\nUser root\n")

    def start(self, name, port=22, extra=""):
        """StrictModes is on: the keys lie where nobody but root can write."""
        there = f"/run/sshd-{port}"
        configuration = (f"Port {port}\nHostKey {there}/host_key\nAuthorizedKeysFile {there}/authorized\nPidFile none\n"
                         f"UsePAM no\nStrictModes yes\nPermitRootLogin prohibit-password\nAcceptEnv TEST_JOB_MARK\n{extra}")
        passwd = self.folder / "passwd"
        passwd.write_text(pathlib.Path("/etc/passwd").read_text() + "sshd:x:74:65534::/run/sshd:/usr/sbin/nologin\n")
        script = f"""set -e
mkdir -p /run/sshd && mkdir -m 700 {there}
cp {self.folder}/{name}_key {there}/host_key && chmod 600 {there}/host_key
cp {self.folder}/user_key.pub {there}/authorized
printf %s {shlex.quote(configuration)} >{there}/config
grep -q ^sshd: /etc/passwd || mount --bind {passwd} /etc/passwd
"""
        subprocess.run(self.lab.on(name, ["sh", "-c", script]), check=True)
        libraries = unpacked_packages.library_path(self.root)
        log = open(self.folder / f"{name}-{port}.log", "wb")
        self.daemons.append(subprocess.Popen(
            self.lab.on(name, ["env", f"LD_LIBRARY_PATH={libraries}", self.root / "usr/sbin/sshd", "-D", "-e", "-f", f"{there}/config"]),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        log.close()
        until = time.monotonic() + 60
        while b"Server listening" not in (self.folder / f"{name}-{port}.log").read_bytes():
            if self.daemons[-1].poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"sshd on {name}: " + (self.folder / f"{name}-{port}.log").read_text())
            time.sleep(0.01)

    def job(self, *arguments, **kwargs):
        env = {"PATH": f"{self.bin}:{os.environ['PATH']}", **kwargs.pop("env", {})}
        return Job(arguments, before=self.lab.head(self.lab.names[0], []), env=env, **kwargs)
