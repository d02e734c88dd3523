"""What both contestants do: how many steps of a size, which sizes, and what servers do with what is pushed."""


def parse(text):
    """Bytes: "1024", "64K", "4M"."""
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    return int(text[:-1] if unit > 1 else text) * unit


def steps_of(size):
    return max(8, min(300, (256 << 20) // size))


WARM_UP = 3

# "plain": the value becomes the sum. "sgd": an optimizer on the servers. "fp16", "bf16", "2bit": in what pushes travel. "replicas": two
# servers have each value.
SETTINGS = ["plain", "sgd", "fp16", "bf16", "2bit", "replicas"]
OF_PSLITE = ["plain", "sgd", "2bit"]
RATE, MOMENTUM, THRESHOLD = 2.0 ** -10, 0.9, 0.5


def expected(setting, workers, steps):
    """Each element after so many steps in which every worker has pushed 1 to what was 0."""
    if setting == "2bit":
        return THRESHOLD * workers
    if setting != "sgd":
        return float(workers)
    value = moved = 0.0
    for _ in range(steps):
        moved = MOMENTUM * moved - RATE * workers
        value += moved
    return value


def is_wrong(value, want):
    return not abs(value - want) <= 1e-4 * abs(want)
