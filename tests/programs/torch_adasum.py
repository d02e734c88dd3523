"""op=Adasum beside its formula, applied in pairs in float64, on 1, 2, 4 ... ranks."""
import hang_report

hang_report.after(250)

import sys

import torch

import aiacc.torch as hvd
from torch_checks import raises, run

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def of_pairs(vectors):
    """The definition: of neighbours, then of neighbours of these."""
    while len(vectors) > 1:
        vectors = [a * (1 - a.dot(b) / a.dot(a) / 2 if a.any() else 1) + b * (1 - a.dot(b) / b.dot(b) / 2 if b.any() else 1)
                   for a, b in zip(vectors[::2], vectors[1::2])]
    return vectors[0]


def of_rank(rank, number, count, dtype):
    return torch.randn(count, generator=torch.Generator().manual_seed(100 * number + rank), dtype=torch.float64).to(dtype)


def close(found, expected):
    error = (found.double().reshape(-1) - expected).norm() / max(expected.norm().item(), 1e-300)
    assert error <= TOLERANCE[found.dtype], (found.dtype, found.shape, error)


def check_beside_the_formula():
    for dtype in TOLERANCE:
        for number, count in enumerate((1, 2, 3, 17, 1000, 4097)):
            given = of_rank(hvd.rank(), number, count, dtype)
            kept = given.clone()
            result = hvd.allreduce(given, op=hvd.Adasum)
            assert torch.equal(given, kept) and result.dtype == dtype
            close(result, of_pairs([of_rank(rank, number, count, dtype).double() for rank in range(hvd.size())]))


def check_each_tensor_by_itself():
    shapes = [(5,), (3, 4), (0,), (1,), (30, 7)]
    rank = hvd.rank()
    given = [of_rank(rank, i, torch.Size(shape).numel(), torch.float32).reshape(shape) for i, shape in enumerate(shapes)]
    for found, shape, i in zip(hvd.grouped_allreduce(given, op=hvd.Adasum), shapes, range(9)):
        assert found.shape == shape
        if found.numel():
            close(found, of_pairs([of_rank(r, i, found.numel(), torch.float32).double() for r in range(hvd.size())]))


def check_orthogonal_parallel_and_zero():
    n, rank = hvd.size(), hvd.rank()
    unit = torch.zeros(n)
    unit[rank] = 3.0
    assert torch.equal(hvd.allreduce(unit, op=hvd.Adasum), torch.full((n,), 3.0))  # orthogonal: the sum
    assert torch.equal(hvd.allreduce(torch.full((6,), 2.0), op=hvd.Adasum), torch.full((6,), 2.0))  # parallel: the average
    assert torch.equal(hvd.allreduce(torch.zeros(4), op=hvd.Adasum), torch.zeros(4))


def check_in_place_names_and_scales():
    given = of_rank(hvd.rank(), 1, 10, torch.float32)
    expected = of_pairs([of_rank(rank, 1, 10, torch.float32).double() for rank in range(hvd.size())])
    close(hvd.synchronize(hvd.allreduce_async(given, name="gradient", op=hvd.Adasum, prescale_factor=2.0, postscale_factor=0.5)), expected)
    hvd.synchronize(hvd.allreduce_async_(given, op=hvd.Adasum))
    close(given, expected)


def check_the_optimizer():
    torch.manual_seed(1)
    model, alone = torch.nn.Linear(3, 2), [torch.nn.Linear(3, 2) for _ in range(hvd.size())]
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters(), op=hvd.Adasum)
    assert isinstance(optimizer, torch.optim.SGD)
    inputs = [torch.tensor([[1.0, rank, -rank]]) for rank in range(hvd.size())]
    for _ in range(3):
        steps = []
        for one, given in zip(alone, inputs):  # the step that each rank would make
            one.load_state_dict(model.state_dict())
            one.zero_grad()
            one(given).square().sum().backward()
            steps.append([-0.1 * p.grad.double().reshape(-1) for p in one.parameters()])
        expected = [p.detach().double().reshape(-1) + of_pairs(list(of)) for p, of in zip(model.parameters(), zip(*steps))]
        optimizer.zero_grad()
        model(inputs[hvd.rank()]).square().sum().backward()
        optimizer.step()
        for found, right in zip(model.parameters(), expected):
            close(found.detach(), right)

    def skip():
        with optimizer.skip_synchronize():
            pass
    assert "Adasum" in raises(AssertionError, skip)


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
