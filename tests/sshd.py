"""A real sshd on namespace hosts: unpacked from its Debian packages into the build folder and never installed, because its
post-install step would start a service on this machine. Keys, configuration and the client's known hosts are made anew."""
import os
import pathlib
import shutil
import subprocess
import time

PACKAGES = ("openssh-server", "libwrap0")
PORT = 2222
CONFIG = """Port {port}
HostKey /run/sshd/host_key
AuthorizedKeysFile /run/sshd/authorized_keys
PidFile none
StrictModes yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
MaxStartups 10:30:100
"""
CLIENT = """Host *
  Port {port}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""


def unpacked():
    """Where the packages were unpacked, or the reason (a string) why they could not be had."""
    root = pathlib.Path(os.environ["AIACC_BUILD"], "sshd")
    if (root / "complete").exists():
        return root
    if not shutil.which("ssh") or not shutil.which("dpkg"):
        return "ssh or dpkg is not installed"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    fetched = subprocess.run(["apt-get", "download", "-o", "APT::Sandbox::User=root", *PACKAGES], cwd=root,
                             capture_output=True, text=True)
    if fetched.returncode != 0:
        return f"openssh-server could not be downloaded: {fetched.stderr.strip().splitlines()[-1]}"
    for package in root.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, root], check=True)
    (root / "complete").touch()
    return root


class SshHosts:
    """sshd on every host of `hosts` (namespace_hosts.Hosts). `path` is a folder with an ssh that knows how to log in."""

    def __init__(self, hosts, folder):
        self.hosts, self.folder, self.servers = hosts, pathlib.Path(folder), []
        self.folder.chmod(0o700)
        self.path = self.folder / "bin"

    def __enter__(self):
        root = unpacked()
        for name in ("host_key", "user_key", "other_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", self.folder / name], check=True)
        self.known_hosts("host_key")
        (self.folder / "sshd_config").write_text(CONFIG.format(port=PORT))
        (self.folder / "ssh_config").write_text(CLIENT.format(port=PORT, folder=self.folder))
        self.path.mkdir()
        (self.path / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/ssh_config "$@"\n')
        (self.path / "ssh").chmod(0o755)
        # sshd wants a user of its own, /run/sshd, and keys below folders that only root may write; all are the host's alone.
        passwd = pathlib.Path("/etc/passwd").read_text().rstrip("\n").splitlines()
        (self.folder / "passwd").write_text("\n".join(
            [line for line in passwd if not line.startswith("sshd:")] + ["sshd:x:100:65534::/run/sshd:/usr/sbin/nologin"]) + "\n")
        start = (f"install -D -m 0600 -t /run/sshd {self.folder}/host_key && "
                 f"install -m 0600 {self.folder}/user_key.pub /run/sshd/authorized_keys && chmod 0700 /run/sshd && mount --bind {self.folder}/passwd /etc/passwd && "
                 f"LD_LIBRARY_PATH={root}/lib/x86_64-linux-gnu:{root}/usr/lib/x86_64-linux-gnu "
                 f"exec {root}/usr/sbin/sshd -D -e -f {self.folder}/sshd_config")
        for name in self.hosts.names:
            log = open(self.folder / f"{name}.log", "wb")
            self.servers.append((name, subprocess.Popen(self.hosts.on(name, ["sh", "-c", start]), stdin=subprocess.DEVNULL,
                                                        stdout=log, stderr=log)))
            log.close()
        until = time.monotonic() + 60
        for name, server in self.servers:
            while "listening" not in (self.folder / f"{name}.log").read_text():
                if server.poll() is not None or time.monotonic() > until:
                    self.__exit__()
                    raise AssertionError(f"sshd on {name}: {(self.folder / f'{name}.log').read_text()}")
                time.sleep(0.02)
        return self

    def __exit__(self, *_):
        for _, server in self.servers:
            server.terminate()
            server.wait()

    def known_hosts(self, key):
        public = (self.folder / f"{key}.pub").read_text()
        (self.folder / "known_hosts").write_text("".join(f"[{name}]:{PORT} {public}" for name in self.hosts.names))
