"""The scenarios of tests/qos/run. Each prints figures, with the bound that is wanted where there is one, and asserts what must be so on
any machine."""
import re
import sys
import time
import traceback

from lab import LINE, LINE_MBIT, PYTHON, SOURCE, Lab

QUEUE_BYTES = 250_000  # 100 ms of the line
# Marks what makes the queue longer than 20 packets, 12 ms, and forgets at once, as DCTCP wants it.
RED = f"red limit {QUEUE_BYTES} min 30000 max 30001 avpkt 1500 burst 21 probability 1 bandwidth {LINE_MBIT}mbit ecn"
FIFO = f"bfifo limit {QUEUE_BYTES}"


def say(text):
    print(f"lab: {text}", flush=True)


def figure(what, value, wanted="", kept=True):
    say(f"    {what}: {value}" + (f"; wanted {wanted}" + ("" if kept else ": MISSED") if wanted else ""))


def busbw(lab, size, calls, warm=1, **variables):
    """Of allreduces, MB/s, whose results are right."""
    row, = lab.perf("allreduce", "--bound", "0", "-b", size, "-e", size, "-n", str(calls), "-w", str(warm), "--place", "in", **variables)
    assert row["wrong"] == 0
    return 1e3 * row["busbw_gbs"]


def latency_beside_bulk(lab, how, **variables):
    """Allreduces of 8 KiB beside ones of 256 KiB: figures of both classes, and asserted is ten times the bound."""
    latency, bulk = lab.perf("--classes", "-b", "8K", "-e", "256K", "-n", "20", **variables)
    alone, beside = latency["alone"]["p99_us"] / 1e3, latency["together"]["p99_us"] / 1e3
    bound = 2 * alone + 64 * 1024 * 8 / LINE_MBIT / 1e3
    share = 100 * bulk["together"]["algbw_gbs"] / (bulk["alone"]["algbw_gbs"] - latency["together"]["algbw_gbs"])
    figure(f"8 KiB, 99 %, {how}", f"{alone:.1f} ms alone, {beside:.1f} beside bulk (50 %: {latency['together']['p50_us'] / 1e3:.1f})",
           f"at most {bound:.1f}", beside <= bound)
    figure(f"bulk, of what latency leaves, {how}", f"{share:.0f} %", "at least 90 %", share >= 90)
    assert beside <= 10 * bound
    assert latency["wrong"] == bulk["wrong"] == 0


def latency_fq_red():
    """Both classes over queues that mark, with fq at both ends."""
    with Lab(2, RED, ecn=True) as lab:
        lab.at_each_egress("fq")
        latency_beside_bulk(lab, "DCTCP", AIACC_TCP_CONGESTION="dctcp", AIACC_TC_BULK="dscp=10,delay=none")
        latency_beside_bulk(lab, "DCTCP, delay=10ms", AIACC_TCP_CONGESTION="dctcp", AIACC_TC_BULK="dscp=10,delay=10ms")
        figure("packets", f"{lab.counted('marked')} marked, {lab.counted('dropped')} dropped")
        assert lab.counted("marked") > 0


def latency_first():
    """A switch that heeds DSCPs: what is marked as latency goes before others, which fill a queue of 100 ms."""
    with Lab(2, "prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1") as lab:
        for number in range(2):
            lab.at_switch("tc", "filter", "add", "dev", f"port{number}", "parent", "10:", "protocol", "ip", "prio", "1", "u32", "match", "ip",
                          "dsfield", "0x88", "0xfc", "flowid", "10:1")
            lab.at_switch("tc", "qdisc", "add", "dev", f"port{number}", "parent", "10:2", "handle", "12:", *FIFO.split())
        latency_beside_bulk(lab, "DSCP 34 first", AIACC_TC_LAT="dscp=34", AIACC_TC_BULK="delay=none")
        classes = lab.at_switch("tc", "-s", "class", "show", "dev", "port0", "classid", "10:1")
        figure("packets of latency at one port", classes.split("pkt")[0].split()[-1])
        assert int(classes.split("pkt")[0].split()[-1]) > 20


def pacing():
    """A rate of half the line, which fq keeps, so that nothing waits in the switch."""
    with Lab(2, FIFO) as lab:
        lab.at_each_egress("fq")
        half = f"rate={LINE_MBIT // 2}mbit"
        rate = busbw(lab, "1M", calls=4, AIACC_TC_BULK=half)
        seen = [lab.at_host(name, "tc", "-s", "qdisc", "show", "dev", "eth0") for name in lab.names]
        throttled = [int(re.search(r"throttled (\d+)\s", one)[1]) for one in seen]
        figure(f"the line used with {half}", f"{100 * rate / LINE:.0f} %", "40 to 52 %", 0.40 <= rate / LINE <= 0.52)
        figure("packets that fq held back", sum(throttled))
        assert rate <= 0.55 * LINE
        assert min(throttled) > 0
        assert lab.counted("dropped") == 0


def marks():
    """DCTCP at both ends heeds the marks: hardly anything is lost where TCP without marks fills the queue. RED drops what it would mark and
    may not, such as acknowledgements."""
    found = {}
    for how, ecn, congestion in (("DCTCP", True, "dctcp"), ("cubic without ECN", False, "cubic")):
        with Lab(2, RED, ecn) as lab:
            rate = busbw(lab, "1M", calls=6, AIACC_TCP_CONGESTION=congestion)
            found[how] = {"marked": lab.counted("marked"), "dropped": lab.counted("dropped"), "CE": lab.tcp("TcpExtTCPDeliveredCE"),
                          "again": lab.tcp("TcpRetransSegs")}
            figure(f"the line used, {how}", f"{100 * rate / LINE:.0f} %", "at least 85 %", rate >= 0.85 * LINE)
            figure(f"packets, {how}", "{marked} marked ({CE} told to the sender), {dropped} dropped, {again} sent again".format(**found[how]))
            assert rate >= 0.085 * LINE
    heeds, fills = found.values()
    assert heeds["marked"] > 0 and heeds["CE"] > 0
    assert fills["marked"] == 0 and fills["dropped"] > 10 * heeds["dropped"]


def loss():
    """One packet of a hundred is lost on each cable: results are right, and what was lost is sent again."""
    with Lab(2, FIFO, loss="loss 1%") as lab:
        rows = lab.perf("allreduce", "--bound", "0", "-b", "8", "-e", "1M", "-f", "16", "-n", "4", "-w", "1")
        dropped, again = lab.counted("dropped", "9:"), lab.tcp("TcpRetransSegs")
        figure("packets", f"{dropped} lost, {again} sent again, of {lab.tcp('TcpOutSegs')}")
        assert dropped > 0 and again > 0
        assert rows and all(row["wrong"] == 0 for row in rows)


def incast():
    """16 that send to one at once, whose cable has a queue of 100 ms."""
    with Lab(17, FIFO) as lab:
        for how, bulk in (("kernel alone", ""), ("delay=10ms", "delay=10ms")):
            again, sent = -lab.tcp("TcpRetransSegs"), -lab.tcp("TcpOutSegs")
            rate = float(lab.job("/usr/bin/python3", SOURCE / "tests/programs/incast.py", 128 << 10, 3, AIACC_TC_BULK=bulk, **PYTHON)) / 1e6
            again, sent = again + lab.tcp("TcpRetransSegs"), sent + lab.tcp("TcpOutSegs")
            figure(f"the line used, {how}", f"{100 * rate / LINE:.0f} %", "at least 85 %", rate >= 0.85 * LINE)
            figure(f"segments sent again, {how}", f"{100 * again / sent:.2f} %", "at most 1 %", again <= 0.01 * sent)
            assert rate >= 0.085 * LINE
            assert again <= 0.1 * sent


def flow_cap():
    """Each connection may have a fifth of the line: one has no more; several are better, which AIACC_TCP_STREAMS=auto finds out."""
    carrying = {}
    for streams in ("1", "8", "auto"):
        with Lab(2, FIFO) as lab:
            lab.rate, lab.flow_rate = f"{LINE_MBIT}mbit", f"{LINE_MBIT // 5}mbit"
            for name in lab.names:
                lab.limit_flows(["nsenter", "--target", str(lab.pids[name]), "--net", "--"])
            used = busbw(lab, "2M", calls=3, warm=10 if streams == "auto" else 1, AIACC_TCP_STREAMS=streams) / LINE
            classes = re.findall(r"class htb 1:[0-9a-f]{3} .*\n Sent (\d+) bytes", lab.at_host("h0", "tc", "-s", "class", "show", "dev", "eth0"))
            carrying[streams] = sum(int(sent) > 256 << 10 for sent in classes)
            figure(f"the line used with AIACC_TCP_STREAMS={streams}", f"{100 * used:.0f} %, by {carrying[streams]} connections",
                   "" if streams == "1" else "at least 95 %", used >= 0.95)
            assert used <= 0.22 * carrying[streams]
    assert carrying["1"] == 1 and carrying["8"] > 4 and carrying["auto"] > 1


SCENARIOS = {"latency-fq-red": latency_fq_red, "latency-first": latency_first, "pacing": pacing, "marks": marks, "loss": loss, "incast": incast,
             "flow-cap": flow_cap}


def main():
    words = sys.argv[1:]
    for name, run in SCENARIOS.items():
        if words and not any(word in name for word in words):
            continue
        began = time.monotonic()
        try:
            run()
            say(f"ok {name} ({time.monotonic() - began:.0f} s)")
        except Exception:  # the other scenarios run all the same
            lines = traceback.format_exc().splitlines()
            say(f"FAILED {name}: {lines[-1]} ({time.monotonic() - began:.0f} s)")
            for line in lines:
                say(f"    {line}")
    say("end of the scenarios")


if __name__ == "__main__":
    main()
