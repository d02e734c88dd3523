"""How much of the communication of a training step cannot be hidden behind its backward pass, whatever does it: the line of a host
carries the gradients one after the other, none before the backward pass has made it."""
import math

from shapes import MODELS

# A segment of 1448 bytes is a frame of 1514 on Ethernet with an MTU of 1500, IPv4 and TCP's timestamps; tc counts frames.
FRAME_BYTES, SEGMENT_BYTES = 1514, 1448


def bits_a_second(rate):
    """ValueError if it is none."""
    for unit, bits in (("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)):
        if rate.endswith(unit):
            return float(rate.removesuffix(unit)) * bits
    raise ValueError(f"{rate} is no rate such as 300mbit or 1gbit")


def line_s(elements, hosts, rate, element_bytes):
    """Seconds that a host's line needs for an allreduce of so many elements: a host sends 2 (h - 1) / h of the bytes at least."""
    return 2 * (hosts - 1) / hosts * 8 * element_bytes * elements * FRAME_BYTES / SEGMENT_BYTES / bits_a_second(rate)


def exposed_s(model, hosts, rate, element_bytes, compute_s):
    """Seconds from the end of a backward pass of `compute_s` to the last sum. The gradients become ready in the reverse order of the
    shapes, each after a share of the pass in proportion to its elements, and the first ones travel first."""
    sizes = [math.prod(shape) for shape in reversed(MODELS[model]())]
    total, done, ends = sum(sizes), 0, 0.0
    for size in sizes:
        done += size
        ends = max(ends, compute_s * done / total) + line_s(size, hosts, rate, element_bytes)
    return ends - compute_s
