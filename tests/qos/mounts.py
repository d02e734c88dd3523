"""What the machine of tests/qos/run mounts over the folders of the host: it sees nothing of what the host has there."""
MOUNTS = (("proc", "/proc", ""), ("sysfs", "/sys", ""), ("tmpfs", "/tmp", "mode=1777"), ("tmpfs", "/run", "mode=755"),
          ("tmpfs", "/var/tmp", "mode=1777"), ("tmpfs", "/root", "mode=700"), ("tmpfs", "/dev/shm", "mode=1777"))
HIDDEN = ("/dev", *(where for _, where, _ in MOUNTS))  # the kernel itself mounts /dev
