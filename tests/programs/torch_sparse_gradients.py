"""Gradients of embeddings with sparse=True in aiacc.torch's optimizer: as they are, and made dense for their way."""
import hang_report

hang_report.after(250)

import copy
import os
import sys
import warnings

import torch
from torch import nn

import aiacc.torch as hvd
from torch_checks import close, raises, run, same


def check_sparse_gradients():
    for keywords in ({}, {"sparse_as_dense": True}, {"compression": Halves}, {"compression": hvd.Compression.fp16}):
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
            if keywords.get("compression") is not hvd.Compression.fp16:
                same(model, reference)
        same(model[0], reference[0], 1e-3)
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
            tables = [optimizers[0]._reducer.slots[table.weight] for table in model.tables]
            assert any(table.submitted for table in tables), "a gradient waited for step()"
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


def check_rows_that_are_not_finite_leave_out_the_step():
    if os.environ.get("AIACC_NAN_CHECK") != "yes":
        return
    torch.manual_seed(8)
    model = nn.Embedding(200, 4, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for step in range(8):
        bad = step in (0, 5)
        optimizer.zero_grad()
        found = model(torch.tensor([3, hvd.rank(), step])).pow(2).mean()
        (found * float("inf") if bad and hvd.rank() == 1 else found).backward()
        before = [one.detach().clone() for one in model.parameters()]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            optimizer.step()
        changed = any(not torch.equal(one, other) for one, other in zip(model.parameters(), before))
        assert changed != bad and [one.category for one in said] == ([RuntimeWarning] if bad else []), (step, said)
        assert not bad or "gradient 'weight' of rank 1 is not finite" in str(said[0].message), said[0].message


def check_gradients_with_several_sparse_dimensions():
    """Also those whose rows have one element, or none."""
    n, rank = hvd.size(), hvd.rank()
    shapes = [((4, 5, 3), 2), ((6, 2), 2), ((5,), 1), ((5, 0), 1), ((3, 2, 2), 1)]
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape, _ in shapes]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), [(f"parameter {i}", one) for i, one in enumerate(parameters)], op=hvd.Sum)
    for step in range(5):
        def dense(i, of):
            kept = torch.rand(shapes[i][0], generator=torch.Generator().manual_seed(100 * step + 10 * of + i)).mul(8).floor()
            return kept * (kept > 4)
        optimizer.zero_grad()
        for i, (_, dims) in enumerate(shapes):
            parameters[i].grad = dense(i, rank).to_sparse(dims)
        optimizer.synchronize()
        for i, (shape, dims) in enumerate(shapes):
            got = parameters[i].grad
            assert got.layout == torch.sparse_coo and got.sparse_dim() == dims and got.is_coalesced() and got.shape == torch.Size(shape)
            assert torch.equal(got.to_dense(), sum(dense(i, of) for of in range(n)))
            assert torch.equal(got.indices(), got.clone().coalesce().indices())


def check_a_table_whose_type_changes():
    """After the first step. Its rows travel as they did."""
    n, rank = hvd.size(), hvd.rank()
    table = nn.Embedding(50, 3, sparse=True)
    nn.init.ones_(table.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), table.named_parameters(), op=hvd.Sum)
    for step, dtype in enumerate((torch.float32, torch.float64, torch.float16, torch.float32)):
        table.weight.grad = None
        table.to(dtype)
        table.weight.grad = torch.sparse_coo_tensor(torch.tensor([[rank, 7 + step]]), torch.full((2, 3), 2.0, dtype=dtype), (50, 3))
        optimizer.synchronize()
        expected = torch.zeros(50, 3, dtype=dtype)
        expected[:n] += 2
        expected[7 + step] += 2 * n
        assert table.weight.grad.dtype == dtype and torch.equal(table.weight.grad.to_dense(), expected)


def check_a_gradient_that_zero_grad_left():
    """In the first step, by torch 1: without rows, and with other dimensions than backward makes."""
    n, rank = hvd.size(), hvd.rank()
    table = nn.Embedding(20, 3, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), table.named_parameters(), op=hvd.Sum)
    for step in range(3):
        uses = rank == 0 or step > 0
        table.weight.grad = torch.zeros(20, 3).to_sparse()
        if uses:
            table.weight.grad = None
            table(torch.tensor([rank])).sum().backward()
        optimizer.synchronize()
        got = table.weight.grad
        if n > 1:
            assert got.sparse_dim() == 1 and got._nnz() == (n if step else 1) and got.to_dense().sum() == 3 * got._nnz()


def check_another_op_than_a_sum_is_refused():
    if hvd.size() == 1:
        return
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Max)
    model(torch.tensor([1])).sum().backward()
    assert "op of a sparse gradient ('weight') is Average or Sum, not Max" in raises(ValueError, optimizer.step)


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
