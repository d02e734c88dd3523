"""Which operations ranks run next, where they have started theirs in different orders.

Each rank says what it has started and not yet run; every rank then comes to the same conclusion from what all have said. Operations
are told apart by their kind and name; of several with the same, as those without a name are, the oldest of each rank belong together.
"""
from __future__ import annotations

import collections
import json
from typing import Counter, List, NamedTuple, Optional, Sequence, Tuple

Key = Tuple[str, Optional[str]]  # kind, name


class Said(NamedTuple):
    """By one rank. Something is pending, as a rank that has nothing to run does not ask."""
    pending: List[Key]  # oldest first
    waits: Optional[int]  # for which of these its program waits; None: the program goes on, and may start others


def encode(said: Said) -> bytes:
    return json.dumps(said).encode()


def decode(data: bytes) -> Said:
    pending, waits = json.loads(data)
    return Said([(kind, name) for kind, name in pending], waits)


def common(everyone: Sequence[Said]) -> List[Key]:
    """What all ranks have started, in the order of the first of them."""
    left: Counter[Key] = collections.Counter(everyone[0].pending)
    for said in everyone[1:]:
        left &= collections.Counter(said.pending)
    order = []
    for key in everyone[0].pending:
        if left[key] > 0:
            left[key] -= 1
            order.append(key)
    return order


def all_wait(everyone: Sequence[Said]) -> bool:
    """Without anything in common they would wait forever."""
    return all(said.waits is not None for said in everyone)


def contradiction(everyone: Sequence[Tuple[int, Said]]) -> str:
    """Ranks, and what they said: what they wait for, which two of them differ in."""
    waited = [(rank, said.pending[said.waits or 0]) for rank, said in everyone]
    first, (kind, name) = waited[0]
    rank, (other_kind, other_name) = next((one for one in waited if one[1] != (kind, name)), waited[-1])
    what = f"{kind} '{name}'" if name else kind
    if kind != other_kind:
        return f"ranks disagree about {what}: its operation is {kind} on rank {first} and {other_kind} on rank {rank}"
    return f"ranks disagree about {what}: its name is {name} on rank {first} and {other_name} on rank {rank}"
