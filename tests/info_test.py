"""aiacc-info under real limits and among odd network devices: what the doctor finds, its cure, and its exit code."""
import json
import os
import re
import resource
import shutil
import subprocess

import pytest

from launcher_support import ORDINARY, STAGE, users

INFO = STAGE / "bin/aiacc-info"
AIACCRUN = STAGE / "bin/aiaccrun"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("AIACC_")}
pytestmark = pytest.mark.skipif(not INFO.exists(), reason="aiacc-info is not part of this build")


def info(*options, limit=None, inside=(), **variables):
    def under():
        if limit:
            resource.setrlimit(limit[0], (limit[1], limit[1]))
    return subprocess.run([*inside, INFO, *options], env={**CLEAN, **variables}, capture_output=True, text=True, timeout=60,
                          preexec_fn=under)


def findings(run):
    assert run.returncode in (0, 1), run.stderr
    found = json.loads(run.stdout)
    assert (run.returncode == 1) == any(one["level"] == "hurts" for one in found)
    assert all(one["cure"] for one in found)
    return {one["about"]: one for one in found if one["level"] == "hurts"}


@pytest.mark.parametrize("user", users())
def test_every_user_gets_a_report(user):
    inside = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"] if user == "ordinary" else []
    text = info(inside=inside)
    assert text.returncode == 0, text.stderr
    titles = re.findall(r"^([A-Z]\w+)", text.stdout, re.M)
    assert titles == ["Built", "Topology", "Network", "Transports", "Settings", "Limits"]
    report = json.loads(info("--json", inside=inside).stdout)
    assert report["host"]["user"] == (ORDINARY if user == "ordinary" else os.getuid())
    assert report["topology"]["unit_count"] == len(os.sched_getaffinity(0))
    names = re.findall(r"^\.It Ev (AIACC_\w+)", (STAGE / "share/man/man7/aiacc-env.7").read_text(), re.M)
    assert [row["name"] for row in report["settings"]] == names


@pytest.mark.parametrize("user", users())
def test_traffic_classes_with_what_the_host_grants(user):
    inside = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"] if user == "ordinary" else []
    setting = {"AIACC_TC_BULK": "dscp=10,priority=7,share=3,rate=500mbit,delay=2ms"}
    text = info("--qos", inside=inside, **setting)
    assert text.returncode == 0, text.stderr
    lines = [line.split() for line in text.stdout.splitlines()]
    assert ["bulk", "AIACC_TC_BULK", "10", "7", "3", "500", "Mbit/s", "2000", "us", "no", "its", "own"] in lines
    assert ["latency", "AIACC_TC_LAT", "-", "-", "90", "-", "-", "no", "those", "of", "background"] in lines
    assert ["background", "AIACC_TC_BG", "-", "-", "1", "-", "1000", "us", "beside", "latency", "over", "TCP", "no", "its", "own"] in lines
    report = json.loads(info("--qos", "--json", inside=inside, **setting).stdout)
    assert [one["name"] for one in report["classes"]] == ["control", "latency", "bulk", "background"]
    assert report["classes"][2]["rate_bits"] == 500_000_000
    assert report["classes"][2]["delay_us"] == 2000 and report["classes"][1]["delay_us"] is None
    assert [one["delay_beside_latency_us"] for one in report["classes"]] == [None, None, None, 1000]
    for class_, shown in ("BULK", [None, None, None, None]), ("BG", [None, None, 1000, 1000]):  # they have the connection of bulk
        report = json.loads(info("--qos", "--json", inside=inside, **{f"AIACC_TC_{class_}": "delay=none"}).stdout)
        assert [one["delay_beside_latency_us"] for one in report["classes"]] == shown
    report = json.loads(info("--qos", "--json", inside=inside, **setting).stdout)
    assert any(one["device"] == "lo" and one["discipline"] == "noqueue" for one in report["devices"])
    if user == "ordinary":
        assert "Operation not permitted" in report["classes"][2]["refused"]
        assert "a priority above 6 needs CAP_NET_ADMIN; give priority=0 to 6" in text.stdout
    assert info("--qos", "--doctor").returncode == 2


def test_a_lossless_class_without_priority_flow_control():
    """Over a device that has none, in a network of the test's own."""
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    inside = ["unshare", "--net", "sh", "-e", "-c",
              "ip link add eth7 type veth peer name eth8; ip address add 192.0.2.7/24 dev eth7; ip link set eth8 up; ip link set eth7 up; "
              'exec "$0" "$@"']
    if subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        pytest.skip("no network can be made here")
    setting = {"AIACC_TC_BULK": "dscp=26,lossless=yes"}
    sentence = "it says lossless=yes, but eth7 says nothing of priority flow control (PFC)"
    assert f"note: AIACC_TC_BULK: {sentence}\n" in info("--doctor", inside=inside, **setting).stdout
    assert sentence in info("--qos", inside=inside, **setting).stdout
    bulk = json.loads(info("--qos", "--json", inside=inside, **setting).stdout)["classes"][2]
    assert bulk["lossless"] is True and bulk["lossless_devices"] == [{"device": "eth7", "priority": None, "pfc": None}]


@pytest.mark.parametrize("about, what, value", [("open files", resource.RLIMIT_NOFILE, 32),
                                                ("address space", resource.RLIMIT_AS, 1 << 30),
                                                ("file size", resource.RLIMIT_FSIZE, 1 << 20)])
def test_a_limit_that_is_too_small_is_found(about, what, value):
    if "-fsanitize" in os.environ.get("CXXFLAGS", ""):
        pytest.skip("a sanitizer needs address space")
    found = findings(info("--doctor", "--json", limit=(what, value)))
    assert about in found, found
    assert "ulimit -" in found[about]["cure"]
    text = info("--doctor", limit=(what, value))
    assert text.returncode == 1 and f"hurts: {about}: " in text.stdout and "will hurt a job here" in text.stdout


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="the limit binds ordinary users, and starting as one needs root")
def test_too_few_processes_for_an_ordinary_user():
    # A user of whom no other test has processes: all of one user count.
    ordinary = ["setpriv", f"--reuid={ORDINARY - 1}", f"--regid={ORDINARY}", "--clear-groups"]
    found = findings(info("--doctor", "--json", limit=(resource.RLIMIT_NPROC, 3), inside=ordinary))
    assert "processes" in found and "of 3 allowed" in found["processes"]["finding"]
    assert "processes" not in findings(info("--doctor", "--json", limit=(resource.RLIMIT_NPROC, 3))), "root is not bound"


# A process that says so may not be read by others of its user, as in a container that refuses it to all.
HIDDEN = """
import ctypes, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
text = ctypes.create_string_buffer(1 << 20)
assert ctypes.CDLL(sys.argv[1]).aiacc_info(text, ctypes.c_size_t(len(text)), None) == 0
print(text.value.decode())
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="root may read everything, and starting as another user needs root")
def test_local_peers_that_may_not_be_read():
    run = subprocess.run(["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", "/usr/bin/python3", "-c", HIDDEN,
                          STAGE / "lib/libaiacc.so"], env=CLEAN, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    found = {one["about"]: one for one in json.loads(run.stdout)["findings"]}["reading through the kernel"]
    assert found["level"] == "hurts" and "Operation not permitted" in found["finding"] and "aiacc_mem_alloc" in found["cure"]


def test_settings_and_their_origin():
    report = json.loads(info("--json", AIACC_TIMEOUT="7m").stdout)
    origins = {row["name"]: (row["value"], row["origin"]) for row in report["settings"]}
    assert origins["AIACC_TIMEOUT"] == ("7m", "environment") and origins["AIACC_LEASE"] == ("30s", "default")
    found = findings(info("--doctor", "--json", AIACC_TIMOUT="3", AIACC_LOG="loud"))
    assert "did you mean AIACC_TIMEOUT?" in found["AIACC_TIMOUT"]["finding"] and "AIACC_LOG" in found


NETWORK = r"""
ip link set lo up
ip link add wire type veth peer name far && ip address add 10.77.0.1/24 dev wire && ip link set wire up && ip link set far up
ip link add bare type veth peer name bare2 && ip link set bare up && ip link set bare2 up
ip link add off type veth peer name off2 && ip address add 10.78.0.1/24 dev off
ip link add docker9 type veth peer name docker8 && ip address add 172.17.0.1/16 dev docker9 && ip link set docker9 up
exec "$@"
"""


def in_network(script):
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("a network namespace needs root and ip")
    inside = ["unshare", "-n", "sh", "-e", "-c", script, "sh"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        pytest.skip("no network namespaces or no veth here")
    return inside


def test_odd_network_devices():
    inside = in_network(NETWORK)
    report = json.loads(info("--json", inside=inside).stdout)
    devices = {device["name"]: device for device in report["network"]}
    assert devices["wire"]["chosen"] and devices["wire"]["order"] == 0 and "10.77.0.1" in devices["wire"]["addresses"]
    assert [name for name, device in devices.items() if device["chosen"]] == ["wire"]
    assert devices["off"]["state"] == "down" and "down" in devices["off"]["why"]
    assert "container" in devices["docker9"]["why"] and "loopback" in devices["lo"]["why"]
    assert re.search("link-local|no address", devices["bare"]["why"])
    by_ssh = json.loads(info("--json", inside=inside, SSH_CONNECTION="10.9.9.9 4711 10.77.0.1 22").stdout)
    assert {"wire"} == {device["name"] for device in by_ssh["network"] if device["order"] == 0}


def test_a_host_without_a_network_is_a_note():
    run = info("--doctor", "--json", inside=in_network('ip link set lo up; exec "$@"'))
    assert run.returncode == 0, run.stdout
    assert "jobs on this host only" in run.stdout


def test_it_runs_as_a_rank():
    run = subprocess.run([AIACCRUN, "-np", "2", INFO, "--json"], env=CLEAN, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    ranks = set()
    for line in run.stdout.splitlines():
        settings = {row["name"]: row for row in json.loads(line)["settings"]}
        assert settings["AIACC_SIZE"]["value"] == "2" and settings["AIACC_SIZE"]["set_by"] == "aiaccrun"
        ranks.add(settings["AIACC_RANK"]["value"])
    assert ranks == {"0", "1"}


@pytest.mark.parametrize("arguments, sentence", [(["--doktor"], "unknown option --doktor; the nearest one is --doctor"),
                                                 (["eth0"], "'eth0' is not an option"),
                                                 (["--json=yes"], "--json is a switch"),
                                                 (["--bytes", "1M"], "--bytes goes with --algorithms"),
                                                 (["--algorithms", "--ranks", "3"], "--ranks takes a whole number from 4 to"),
                                                 (["--algorithms", "--bytes", "0"], "--bytes takes a size from 1 to 1T"),
                                                 (["--qos", "--algorithms"], "print different parts: give one of them")])
def test_usage(arguments, sentence):
    run = info(*arguments)
    assert run.returncode == 2 and sentence in run.stderr and run.stderr.count("\n") == 1 and run.stdout == ""


def test_a_reader_that_left_is_no_crash():
    assert subprocess.run(f"{INFO} --json | head -c 10", shell=True, env=CLEAN, capture_output=True).stdout == b'{"version"'


def test_algorithms_between_hosts_with_the_reason_of_the_choice(tmp_path):
    text = info("--algorithms").stdout
    assert re.search(r"^allreduce between 4 ranks: recursive-doubling up to 64K, halving-doubling up to 64M, ring above \(measured\)$", text, re.M), text
    assert re.search(r"^  \* ring +chosen$", text, re.M) and re.search(r"^    ordered +not chosen$", text, re.M), text
    assert "halving-doubling    cannot serve; it needs a power of two of ranks, at least four" in info("--algorithms", "--hosts", "6").stdout
    text = info("--algorithms", "--hosts", "4", "--ranks", "8", "--bytes", "1M").stdout
    assert "between 4 hosts with 2 ranks each" in text
    assert re.search(r"^broadcast of 1M between 4 ranks: chain \(the least predicted time\)$", text, re.M), text
    assert re.search(r"^  \* chain +[0-9.]+ us predicted$", text, re.M), text
    assert re.search(r"^    binomial +cannot serve; it needs one rank of each host$", text, re.M), text
    text = info("--algorithms", "--hosts", "4", "--ranks", "12").stdout
    assert re.search(r"^alltoall between 4 ranks, one of each host, for blocks of up to 910: pairwise .*\nalltoall between 12 ranks: pairwise ", text, re.M), text
    [alltoall] = [one for one in json.loads(info("--algorithms", "--ranks", "8", "--bytes", "64", "--json").stdout) if one["collective"] == "alltoall"]
    assert (alltoall["ranks"], alltoall["bytes"], alltoall["bytes_between_hosts"], alltoall["algorithms"][1]["obstacle"]) == (4, 64, 256, None)
    table = tmp_path / "table"
    table.write_text("aiacc-algorithm-table 1\ntransport tcp\nstreams 1\nencrypt none\nallreduce 4 plain 512 8192 ring\nend\n")
    setting = {"AIACC_ALGORITHM_TABLE": str(table), "AIACC_ALGORITHM": "reduce=ordered"}
    reasons = {one["collective"]: (one["chosen"], one["reason"]) for one in json.loads(info("--algorithms", "--bytes", "4K", "--json", **setting).stdout)}
    assert reasons["allreduce"] == ("ring", "AIACC_ALGORITHM_TABLE") and reasons["reduce"] == ("ordered", "AIACC_ALGORITHM")
    assert reasons["barrier"] == ("dissemination", "the only one") and reasons["reduce-scatter"] == ("recursive-halving", "measured thresholds")
    assert "ring* up to 8K" in info("--algorithms", **setting).stdout
    table.write_text("half")
    assert "it is not a table of algorithms" in info("--algorithms", **setting).stdout


def test_help_and_manual_have_the_same_options():
    page = (STAGE / "share/man/man1/aiacc-info.1").read_text()
    options = re.search(r"^\.Sh OPTIONS\n(.*?)^\.Ss ", page, re.S | re.M)[1]
    of_page = [re.sub(r" Ar ", " ", re.sub(r"Fl ", "-", item)).replace(" ,", ",") for item in re.findall(r"^\.It (.*)$", options, re.M)]
    assert re.findall(r"^  (-.*?)(?:  |$)", info("--help").stdout, re.M) == of_page


def test_rdma_devices_that_are_not_as_they_should_be(tmp_path):
    """In place of /sys/class there is a tree of the test's, in a mount namespace of its own."""
    if os.geteuid() != 0:
        pytest.skip("a mount namespace needs root")
    port = tmp_path / "infiniband/mlx5_0/ports/1"
    for name, text in {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet", "rate": "100 Gb/sec (4X EDR)",
                       "gids/0": "0000:0000:0000:0000:0000:ffff:0a63:0001", "gid_attrs/types/0": "IB/RoCE v1", "gid_attrs/ndevs/0": "none0",
                       "hw_counters/out_of_sequence": "7", "hw_counters/rp_cnp_handled": "99"}.items():
        (port / name).parent.mkdir(parents=True, exist_ok=True)
        (port / name).write_text(text + "\n")
    inside = ["unshare", "--mount", "sh", "-e", "-c", 'mount --bind "$0" /sys/class; exec "$@"', tmp_path]
    if subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    text = info("--doctor", inside=inside)
    assert text.returncode == 1, text.stderr
    assert "hurts: rdma: mlx5_0 has no device node here, so ranks do not use it\n" in text.stdout
    assert "hurts: rdma: port 1 of mlx5_0 has GIDs of RoCE v1 only, whose packets are not routed and carry no DSCP\n" in text.stdout
    assert "note: rdma: port 1 of mlx5_0 has counted 7 packets that came out of order" in text.stdout
    shown = info("--qos", inside=inside, AIACC_UCX_IB_TRAFFIC_CLASS="136").stdout
    assert re.search(r"^  mlx5_0/1 +136 +34 +- +unknown +-$", shown, re.M) and re.search(r"^  mlx5_0/1 +rp_cnp_handled +99$", shown, re.M), shown
    assert re.search(r"^  +mlx5_0 port 1 +ACTIVE +Ethernet on none0 +100 Gb/sec \(4X EDR\) +GID 0 ", info(inside=inside).stdout, re.M)
