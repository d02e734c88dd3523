"""Gradients of embeddings with sparse=True in aiacc.torch's optimizer: as they are, and made dense for their way."""
import hang_report

hang_report.after(250)

import copy
import sys

import torch
from torch import nn

import aiacc.torch as hvd
from torch_checks import close, run, same


def check_sparse_gradients():
    for keywords in ({}, {"sparse_as_dense": True}):
        torch.manual_seed(4)
        model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2))
        reference = copy.deepcopy(model)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **keywords)
        plain = torch.optim.SGD(reference.parameters(), lr=0.1)
        for step in range(3):
            ids = [torch.randint(0, 10, (5,), generator=torch.Generator().manual_seed(step * 10 + rank)) for rank in range(hvd.size())]
            for one, each, data in ((model, optimizer, ids[hvd.rank()]), (reference, plain, torch.cat(ids))):
                each.zero_grad()
                one(data).pow(2).mean().backward()
                each.step()
            same(model, reference)
        assert model[0].weight.grad.layout == torch.sparse_coo


class Halves(hvd.Compression.none):
    """A class of the user's, which the gradient engine does not know."""

    @staticmethod
    def compress(tensor):
        return tensor / 2, None

    @staticmethod
    def decompress(tensor, context):
        return tensor * 2


def check_sparse_gradients_that_travel_dense_are_sparse_for_the_optimizer():
    """SparseAdam takes no others. One table is used by rank 0 alone from the second step on."""
    n, rank = hvd.size(), hvd.rank()
    for keywords in ({}, {"compression": hvd.Compression.fp16}, {"compression": Halves}):
        torch.manual_seed(9)
        model = nn.ModuleList([nn.Embedding(12, 4, sparse=True), nn.Embedding(7, 4, sparse=True)])
        reference = copy.deepcopy(model)
        optimizers = [torch.optim.SparseAdam(list(one.parameters()), lr=0.1) for one in (model, reference)]
        optimizers[0] = hvd.DistributedOptimizer(optimizers[0], model.named_parameters(), sparse_as_dense=True, **keywords)

        def loss(of, step, who):
            ids = torch.randint(0, 7, (5,), generator=torch.Generator().manual_seed(step * 10 + who))
            found = of[0](ids)
            if step == 0 or who == 0:
                found = torch.tanh(found + of[1](ids))
            return found.pow(2).mean()
        for step in range(4):
            for each in optimizers:
                each.zero_grad()
            loss(model, step, rank).backward()
            sum(loss(reference, step, who) for who in range(n)).div(n).backward()
            for each in optimizers:
                each.step()
            for one, other in zip(model.parameters(), reference.parameters()):
                close(one.detach(), other.detach(), 3e-2 if keywords.get("compression") is hvd.Compression.fp16 else 1e-5)
                assert one.grad is None or one.grad.layout == torch.sparse_coo and one.grad.sparse_dim() == 1


class TwoTables(nn.Module):
    """Its tables are used in an order that the caller chooses, and maybe only one of them."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(300, 4, sparse=True), nn.Embedding(6, 4, sparse=True)])
        self.last = nn.Linear(4, 2)

    def forward(self, ids, order):
        found = 0.0
        for table in order:
            found = torch.tanh(found + self.tables[table](ids % self.tables[table].num_embeddings))
        return self.last(found)


def check_sparse_gradients_in_different_orders():
    n, rank = hvd.size(), hvd.rank()
    torch.manual_seed(8)
    model = TwoTables()
    reference = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, reference)]
    optimizers[0] = hvd.DistributedOptimizer(optimizers[0], model.named_parameters())
    for step in range(8):
        orders = [[0, 1] if (step + of) % 2 else [1, 0] if step % 3 or of else [1] for of in range(n)]
        ids = [torch.randint(0, 300, (5,), generator=torch.Generator().manual_seed(step * 10 + of)) for of in range(n)]
        for each in optimizers:
            each.zero_grad()
        model(ids[rank], orders[rank]).pow(2).mean().backward()
        sum(reference(ids[of], orders[of]).pow(2).mean() for of in range(n)).div(n).backward()
        if step and n > 1:  # the plan is known: reduced during backward already
            assert optimizers[0]._sparse._started, "a gradient waited for step()"
        for each in optimizers:
            each.step()
        same(model, reference)
        for table in model.tables:
            assert table.weight.grad is None or table.weight.grad.layout == torch.sparse_coo


def check_a_rank_that_has_joined_has_no_rows():
    if hvd.size() == 1:
        return
    torch.manual_seed(8)
    model = nn.Sequential(nn.Embedding(30, 4, sparse=True), nn.Linear(4, 2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for _ in range(2 + hvd.rank()):
        optimizer.zero_grad()
        model(torch.tensor([3, hvd.rank()])).pow(2).mean().backward()
        optimizer.step()
    assert hvd.join() == hvd.size() - 1
    hvd.broadcast_(model[0].weight.data, hvd.size() - 1)
    assert model[0].weight.isfinite().all()


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
