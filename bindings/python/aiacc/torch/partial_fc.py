"""PartialFC, as the scripts of InsightFace's arcface_torch use it."""
from __future__ import annotations

from typing import Callable, Optional

import torch

from aiacc._arguments import whole
from aiacc._horovod.process_sets import ProcessSet, global_process_set
from aiacc.torch.sharded_softmax import ShardedSoftmax


class PartialFC(ShardedSoftmax):
    """`module(local_embeddings, local_labels)` is the loss of the joined batch: rows of embeddings and weight are normalised, and
    margin_loss(logits, labels) makes the logits of their cosines. `labels` are N x 1, the column of a row's class, or -1 if the class is
    on another rank. It may change the cosines in place.

    `sample_rate` and the gradients are as in ShardedSoftmax. `fp16`: the cosines are computed in 16 bits, on the CPU bfloat16.
    `module(local_embeddings, local_labels, optimizer)`, as scripts for PartialFC call it and those for PartialFC_V2 do not, is `only_used`
    for that optimizer too: InsightFace's changes the used classes alone then, and otherwise all.
    """

    def __init__(self, margin_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], embedding_size: int, num_classes: int,
                 sample_rate: float = 1.0, fp16: bool = False, process_set: ProcessSet = global_process_set) -> None:
        if whole("embedding_size", embedding_size) < 1:
            raise ValueError(f"embedding_size is {embedding_size}: it is 1 or more")
        super().__init__(embedding_size, num_classes, sample_rate=sample_rate, process_set=process_set)
        if not callable(margin_loss):
            raise ValueError(f"margin_loss is of {type(margin_loss).__name__}: it is called with logits and labels, as CombinedMarginLoss is")
        self.margin_softmax, self.embedding_size, self.fp16 = margin_loss, embedding_size, fp16

    def forward(self, local_embeddings: torch.Tensor, local_labels: torch.Tensor, optimizer: Optional[torch.optim.Optimizer] = None) -> torch.Tensor:
        if optimizer is not None and self.sample_rate < 1:
            self.only_used(optimizer)
        return super().forward(local_embeddings, local_labels.reshape(-1))

    def _logits(self, features: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        features, weight = torch.nn.functional.normalize(features).to(weight.dtype), torch.nn.functional.normalize(weight)
        kind = torch.bfloat16 if self.fp16 else weight.dtype
        cosines = (features.to(kind) @ weight.to(kind).t()).to(weight.dtype).clamp(-1, 1)
        return self.margin_softmax(cosines, self._columns(labels).reshape(-1, 1))

    def _columns(self, labels: torch.Tensor) -> torch.Tensor:
        here = (labels >= self.first_class) & (labels < self.first_class + self.classes)
        columns = labels - self.first_class if self.used is None else torch.searchsorted(self.used, labels)
        return torch.where(here, columns, torch.full_like(labels, -1))


PartialFC_V2 = PartialFC
