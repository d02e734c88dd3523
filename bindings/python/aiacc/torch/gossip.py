"""Gossip: who exchanges parameters with whom between LocalSGD's averages of all ranks.

Exchanges with neighbours in place of averages of all: Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017. With one
peer at a time: Assran et al., "Stochastic Gradient Push", ICML 2019. Which one, so that all have the average after few exchanges, however many they are:
after the Base-(k + 1) Graph of Takezawa et al., "Beyond Exponential Graph", NeurIPS 2023, for k = 1. Differences to what both know in place of parameters: Koloskova et al.,
"Decentralized Stochastic Optimization and Gossip Algorithms with Compressed Communication", ICML 2019; here to the last average of all, and without its memory of errors.
"""
from __future__ import annotations

import hashlib
import math
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from aiacc._arguments import count, refused
from aiacc._horovod import process_sets
from aiacc._horovod.process_sets import ProcessSet
from aiacc.groups import Group
from aiacc.torch.compression import BF16Compressor, Compression, FP16Compressor, NoneCompressor

_COMPRESSIONS = (NoneCompressor, FP16Compressor, BF16Compressor)
_NODES = ("hosts", "ranks")


class Edge(NamedTuple):
    """Two that exchange. `weight`: of the other's parameters; one keeps its own with 1 - weight."""
    one: int
    other: int
    weight: float


def rounds_of(nodes: Sequence[int]) -> List[List[Edge]]:
    """Exchanges one after the other, behind which all have the average of all. Each node is in one of a round at most. 2^k nodes take k rounds, others two times
    log2 of them, rounded down, and one."""
    blocks, begin = [], 0  # of 2^k nodes each, the larger ones first
    for k in reversed(range(len(nodes).bit_length())):
        if len(nodes) & 1 << k:
            blocks.append(nodes[begin:begin + (1 << k)])
            begin += 1 << k
    rounds: List[List[Edge]] = []
    for block in blocks:
        _add(rounds, 0, _cube(block))
    # Each block has its average. Then each of the nodes behind a block exchanges with one of it, so that the block's average becomes that of all, and so does theirs.
    first, left = len(rounds), nodes
    for number, block in enumerate(blocks[:-1]):
        behind = left[len(block):]
        _add(rounds, first + number, [[Edge(one, other, len(block) / len(left)) for one, other in zip(block, behind)], *_cube(block)])
        left = behind
    return rounds


def _cube(nodes: Sequence[int]) -> List[List[Edge]]:
    """Of 2^k nodes."""
    bits = [1 << k for k in range(len(nodes).bit_length() - 1)]
    return [[Edge(nodes[i], nodes[i | bit], 0.5) for i in range(len(nodes)) if not i & bit] for bit in bits]


def _add(rounds: List[List[Edge]], at: int, more: List[List[Edge]]) -> None:
    rounds += ([] for _ in range(at + len(more) - len(rounds)))
    for number, edges in enumerate(more):
        rounds[at + number] += edges


class Turns:
    """The steps behind which a fragment is exchanged, and the numbers of these exchanges, without gaps: otherwise averages would always take the place of the same rounds."""

    def __init__(self, every: int, fragment: int, fragments: int, period: int, offset: int, delay: int) -> None:
        between = every * fragments
        self._cycle = between * period // math.gcd(between, period)  # steps after which all is as before
        steps = range(every * (1 + fragment), self._cycle + 1, between)
        # While an average is on its way there is none.
        self.steps = {step: number for number, step in enumerate(one for one in steps if (one - offset) % period >= max(delay, 1))}

    def number(self, step: int) -> Optional[int]:
        """`step`: 1 is the first one. None: there is no exchange."""
        cycles, place = divmod(step - 1, self._cycle)
        number = self.steps.get(place + 1)
        return None if number is None else cycles * len(self.steps) + number


class Gossip:
    """Exchanges between LocalSGD's averages: behind every `every`-th step the ranks of a node average their parameters with those of one other node.

        optimizer = hvd.LocalSGD(sgd, period=64, gossip=hvd.Gossip(every=1, compression=hvd.Compression.fp16))

    A node waits for one other, and not for all, and sends the parameters once. The other one is another each time, so that without steps in between all would have the
    average of all after log2(n) exchanges of n nodes, or up to 2 log2(n) + 1 where n is no power of two; with unlike numbers of ranks they come near to it. The mean of all
    ranks does not change by them. `nodes`: "hosts", whose ranks have a DistributedOptimizer of the host's process set in the LocalSGD for the most part, or "ranks".
    `compression`: Compression.fp16 or bf16: what parameters have changed since the last average of all travels in 16 bits. `delay`: so many steps are made while an
    exchange is on its way, at most `every`. LocalSGD's fragments take turns. Behind a step with which an average begins, and until it has come, its fragment is not exchanged.
    """

    def __init__(self, every: int = 1, *, nodes: str = "hosts", compression: Any = Compression.none, delay: int = 0) -> None:
        self.every, self.delay = count("every", every), count("delay", delay)
        if self.every < 1:
            raise ValueError(f"every is {self.every}: it is 1 or more")
        if not 0 <= self.delay <= self.every:
            raise ValueError(f"delay is {self.delay}: it is 0 or more, and at most {self.every} (every)")
        if not isinstance(nodes, str) or nodes not in _NODES:
            raise refused("nodes", nodes, '"hosts" or "ranks"')
        if compression not in _COMPRESSIONS:
            raise refused("compression", compression, "Compression.none, Compression.fp16 or Compression.bf16")
        self.nodes, self.compression = nodes, compression

    def turns(self, fragment: int, fragments: int, period: int, offset: int, delay: int) -> Turns:
        """Of a fragment whose averages begin `offset` steps after each `period` and come `delay` steps later."""
        made = Turns(self.every, fragment, fragments, period, offset, delay)
        if not made.steps:
            raise ValueError(f"gossip: with every={self.every}, period={period}, fragments={fragments} and delay={delay} there is always an average when fragment "
                             f"{fragment} could be exchanged: exchange more often, or average less often")
        return made

    def __repr__(self) -> str:
        return f"Gossip(every={self.every}, nodes={self.nodes!r}, compression=Compression.{_name(self.compression)}, delay={self.delay})"


def _name(compression: Any) -> str:
    return next(name for name in ("none", "fp16", "bf16") if getattr(Compression, name) is compression)


class Partners(ProcessSet):
    """The ranks of two nodes. No set of the program's, which may have one of the same ranks: its groups have keys of their own."""

    def __init__(self, ranks: List[int], of: ProcessSet) -> None:
        super().__init__(ranks)
        self._of = of.process_set_id
        self._register(-1 - len(of._inner), of._own_rank)

    def _group(self, purpose: str) -> Group:
        key = int.from_bytes(hashlib.blake2b(f"gossip {self._of} {purpose}".encode(), digest_size=8).digest(), "little")
        return process_sets._parent.create(self._registered(), name=f"aiacc {purpose} of {self}", key=key)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"the ranks {self.ranks} of two nodes that exchange parameters"


def share(weight: float, one: int, other: int) -> float:
    """How far the ranks of two nodes go to the mean of all of them, where nodes of one rank each would give the other's the weight. Never so far that they leave what
    lies between the two nodes, as otherwise a node of few ranks may beside one of many."""
    return min(2 * weight, (one + other) / max(one, other))


class Exchanges:
    """Those of this rank in a world: of each round the ranks that average and how far this one goes to their mean (1.0: all of the way), or None."""

    def __init__(self, nodes: List[List[int]], process_set: ProcessSet) -> None:
        self.rounds: List[Optional[Tuple[Partners, float]]] = []
        for edges in rounds_of(range(len(nodes))):
            found = None
            for edge in edges:
                one, other = nodes[edge.one], nodes[edge.other]
                if process_set._own_rank in one + other:
                    found = _partners(sorted(one + other), process_set), share(edge.weight, len(one), len(other))
            self.rounds.append(found)

    @classmethod
    def among(cls, nodes: Sequence[bytes], process_set: ProcessSet) -> Exchanges:
        """`nodes`: of each rank of the set."""
        by_node: Dict[bytes, List[int]] = {}
        for rank, node in zip(process_set._registered(), nodes):
            by_node.setdefault(node, []).append(rank)
        return cls(list(by_node.values()), process_set)

    def of(self, number: int) -> Optional[Tuple[Partners, float]]:
        """What this rank does in the exchange of that number, of all since the first step."""
        return self.rounds[number % len(self.rounds)] if self.rounds else None


def _partners(ranks: List[int], process_set: ProcessSet) -> Partners:
    """All LocalSGDs of a set have the same."""
    key = ("gossip", *ranks)
    found = process_set._inner.get(key)
    if found is None:
        found = process_set._inner[key] = Partners(ranks, process_set)
    assert isinstance(found, Partners)
    return found


__all__ = ["Gossip"]
