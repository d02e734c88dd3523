"""What both contestants do: how many steps of a size, and which sizes."""


def parse(text):
    """Bytes: "1024", "64K", "4M"."""
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    return int(text[:-1] if unit > 1 else text) * unit


def steps_of(size):
    return max(8, min(300, (256 << 20) // size))


WARM_UP = 3
