"""Arguments of the wrong type: what is raised names the argument, and says what it takes."""
from __future__ import annotations

import math
import operator
from typing import Any, List, Optional


def refused(name: str, value: Any, wanted: str) -> TypeError:
    shown = repr(value) if value is None or isinstance(value, (bool, int, float, str)) else f"of {type(value).__name__}"
    return TypeError(f"{name} is {shown}: it is {wanted}")


def whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise refused(name, value, "a whole number") from None


def count(name: str, value: Any) -> int:
    """As whole(); a float that is a whole number, as of a division, is taken too."""
    return int(value) if isinstance(value, float) and value.is_integer() else whole(name, value)


def member(name: str, value: Any, kind: Any) -> int:
    """Of an enumeration, or its number."""
    try:
        return operator.index(value)
    except TypeError:
        raise refused(name, value, f"one of {', '.join(f'{kind.__name__}.{one}' for one in kind.__members__)}") from None


def number(name: str, value: Any) -> float:
    if type(value) is float:
        return value
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, RuntimeError):  # the last one of a tensor of several elements
        pass
    raise refused(name, value, "a number")


def milliseconds(timeout: Any) -> int:
    """-1: without an end."""
    seconds = number("timeout", timeout)
    if math.isnan(seconds) or seconds == -math.inf:
        raise ValueError(f"timeout is {seconds}: it is a number of seconds")
    return -1 if seconds == math.inf else max(1, int(seconds * 1000))


def text(name: str, value: Any) -> Optional[str]:
    if value is not None and not isinstance(value, str):
        raise refused(name, value, "text, or None")
    return value


def several(name: str, value: Any, wanted: str) -> List[Any]:
    try:
        if not isinstance(value, (str, bytes)):
            return list(value)
    except TypeError:
        pass
    raise refused(name, value, wanted)
