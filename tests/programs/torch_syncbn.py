"""SyncBatchNorm: every rank also normalises the joined batch alone, in fp64, which must give the same."""
import copy
import pickle
import sys
import threading

import torch
from torch import nn

import aiacc.torch as hvd
from torch_checks import close, equal, raises, run

PLAIN = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def sizes():
    """Ranks have batches of different sizes; the last of several has an empty one."""
    return [4 + rank if rank == 0 or rank < hvd.size() - 1 else 0 for rank in range(hvd.size())]


def near(one, other, tolerance):
    """Relative to the largest."""
    one, other = one.double(), other.double()
    assert one.shape == other.shape and (one.numel() == 0 or float((one - other).abs().max()) <= tolerance * max(1.0, float(other.abs().max()))), \
        float((one - other).abs().max())


def compare(shape, dtype=torch.float32, mean=5.0, deviation=3.0, tolerance=1e-6, arrange=lambda x: x, **keywords):
    """One training step and one evaluation. `shape` is of a sample."""
    torch.manual_seed(6)
    parts = [torch.randn(size, *shape) * deviation + mean for size in sizes()]
    parts = [part.to(dtype) for part in parts]
    weights = [torch.randn_like(part) for part in parts]
    plain = PLAIN[len(shape) + 1](shape[0], **keywords).double()
    synced = hvd.SyncBatchNorm(shape[0], **keywords)
    if keywords.get("affine", True):
        with torch.no_grad():
            for one, other in zip(plain.parameters(), synced.parameters()):
                other.copy_(torch.randn(shape[0]))
                one.copy_(other)
    if dtype == torch.float64:
        synced.double()
    whole = torch.cat(parts).double().requires_grad_()
    expected = plain(whole)
    (expected * torch.cat(weights).double()).sum().backward()
    mine = arrange(parts[hvd.rank()].clone()).requires_grad_()
    result = synced(mine)
    assert result.dtype == dtype and result.stride() == mine.stride()
    (result * weights[hvd.rank()]).sum().backward()
    own = slice(sum(sizes()[:hvd.rank()]), sum(sizes()[:hvd.rank() + 1]))
    rounding = {torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8}.get(dtype, 0)
    near(result.detach(), expected[own].detach(), tolerance + rounding)
    near(mine.grad, whole.grad[own], tolerance + rounding)
    if keywords.get("affine", True):
        near(hvd.allreduce(synced.weight.grad, op=hvd.Sum), plain.weight.grad, tolerance)
        near(hvd.allreduce(synced.bias.grad, op=hvd.Sum), plain.bias.grad, tolerance)
    if keywords.get("track_running_stats", True):
        assert synced.num_batches_tracked == 1
        near(synced.running_mean, plain.running_mean, tolerance)
        near(synced.running_var, plain.running_var, tolerance)
        everyone = hvd.allgather_object((synced.running_mean, synced.running_var))
        for one, other in everyone:
            equal(one, synced.running_mean), equal(other, synced.running_var)
        synced.eval(), plain.eval()
        near(synced.float()(parts[0].float()).detach(), plain(parts[0].double()).detach(), 1e-5 if mean < 100 else 1e-2)


def check_shapes_and_settings():
    for shape in ((3,), (3, 5), (70, 5, 2), (3, 2, 3, 2)):
        for keywords in ({}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}, {"momentum": 0.7, "eps": 1e-3}):
            compare(shape, **keywords)


def check_types():
    compare((5, 6, 7), torch.float64, tolerance=1e-13)
    compare((5, 6, 7), torch.bfloat16)
    if torch.__version__ >= "2":  # 1.13 has no random numbers of fp16 on the CPU
        compare((5, 6, 7), torch.float16)


def check_means_of_ten_thousand_deviations():
    if hvd.size() == 1:  # torch's own batch normalisation, whose mean is fp32
        return
    compare((4, 9, 9), mean=1e4, deviation=1.0)


def check_channels_last():
    compare((5, 4, 3), arrange=lambda x: x.contiguous(memory_format=torch.channels_last))
    compare((5, 4, 3, 2), arrange=lambda x: x.contiguous(memory_format=torch.channels_last_3d))


def check_finite_differences():
    norm = hvd.SyncBatchNorm(2).double()
    torch.manual_seed(3 + hvd.rank())
    given = torch.randn(3 + hvd.rank(), 2, 2, dtype=torch.float64)
    factor = torch.randn_like(given)

    def loss():
        return float(hvd.allreduce((norm(given) * factor).sum().detach(), op=hvd.Sum))

    given.requires_grad_()
    (norm(given) * factor).sum().backward()
    found, given.requires_grad = given.grad.clone(), False
    for owner in range(hvd.size()):
        for at in range(4):
            change = torch.zeros(given.numel(), dtype=torch.float64)
            change[at] = 1e-6 if hvd.rank() == owner else 0.0
            change = change.view_as(given)
            given += change
            above = loss()
            given -= 2 * change
            below = loss()
            given += change
            if hvd.rank() == owner:
                assert abs((above - below) / 2e-6 - float(found.view(-1)[at])) < 1e-6


def check_conversion():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, momentum=0.3), nn.ReLU(), nn.Sequential(nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4, affine=False)))
    model[3][1].eval()
    alone = copy.deepcopy(model)
    parameters = dict(model.named_parameters())
    converted = hvd.SyncBatchNorm.convert_sync_batchnorm(model)
    assert converted is model and type(model[1]) is hvd.SyncBatchNorm and type(model[3][1]) is hvd.SyncBatchNorm
    assert dict(model.named_parameters()).keys() == parameters.keys() and all(parameters[name] is one for name, one in model.named_parameters())
    assert model[1].training and not model[3][1].training and model[1].momentum == 0.3
    assert type(hvd.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3))) is hvd.SyncBatchNorm
    parts = [torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(rank)) for rank in range(hvd.size())]
    close(model(parts[hvd.rank()]), alone(torch.cat(parts))[2 * hvd.rank():2 * hvd.rank() + 2], 1e-5)
    close(model[1].running_var, alone[1].running_var)


def check_process_sets():
    if hvd.size() < 3:
        return
    pair = hvd.add_process_set([0, 2])
    if hvd.rank() != 1:
        parts = [torch.randn(3, 4, generator=torch.Generator().manual_seed(rank)) for rank in (0, 2)]
        close(hvd.SyncBatchNorm(4, process_set=pair)(parts[hvd.rank() // 2]), nn.BatchNorm1d(4)(torch.cat(parts))[3 * (hvd.rank() // 2):][:3], 1e-5)
    hvd.remove_process_set(pair)


def check_a_rank_that_has_joined():
    """The others raise, and everything goes on when all have joined."""
    size, rank = hvd.size(), hvd.rank()
    if size == 1:
        return
    pair = hvd.add_process_set([0, size - 1]) if size > 2 else hvd.global_process_set
    for among, callers in ((hvd.global_process_set, size - 1), (hvd.global_process_set, 1), (pair, 1)):
        norm = hvd.SyncBatchNorm(3, process_set=among)
        if rank < callers:  # the others have joined
            assert "SyncBatchNorm while a rank has joined" in raises(hvd.HorovodInternalError, norm, torch.randn(2, 3))
            equal(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(callers)))
        hvd.join()
        if among.included():
            norm(torch.randn(2, 3)).sum().backward()
    hvd.remove_process_set(pair)


def check_bad_inputs():
    norm = hvd.SyncBatchNorm(3)
    assert "dimensions" in raises(ValueError, norm, torch.zeros(3))
    if hvd.size() == 1:
        return
    assert "of 3 channels got 4" in raises(ValueError, norm, torch.zeros(2, 4))
    assert "int32" in raises(ValueError, norm, torch.zeros(2, 3, dtype=torch.int32))
    assert "the batches of all ranks are empty" in raises(ValueError, norm, torch.zeros(0, 3))
    assert "1 value of a channel" in raises(ValueError, norm, torch.zeros(1 if hvd.rank() == 0 else 0, 3))
    norm(torch.randn(2, 3))  # nothing is over


def check_other_channels():
    """The last check: the norms of the set are over."""
    if hvd.size() == 1:
        return
    channels = 4 if hvd.rank() == 1 else 3
    said = raises(hvd.HorovodInternalError, hvd.SyncBatchNorm(channels), torch.randn(2, channels))
    assert "'3 channels'" in said and "'4 channels'" in said, said
    hvd.barrier()


def check_an_abort_ends_the_join_of_others():
    """As that of a rank which leaves a world of an elastic job."""
    if hvd.size() == 1:
        return
    hvd.shutdown()  # the check before has ended the calls of this world
    hvd.init()
    norms, failures = hvd.global_process_set._in_model_order("SyncBatchNorm"), []

    def join():
        try:
            norms.join()
        except RuntimeError as error:
            failures.append(str(error))
    norms.get()
    hvd.barrier()
    if hvd.rank() == 0:
        norms.abort("it goes on without them")
    else:
        thread = threading.Thread(target=join)
        thread.start()
        thread.join(60)
        assert "it goes on without them" in failures[0]
    hvd.shutdown()
    hvd.init()


def check_models_are_copied_and_pickled():
    """Whatever has run before: copies belong to the same process set."""
    pair = hvd.add_process_set([0, hvd.size() - 1]) if hvd.size() > 2 else hvd.global_process_set
    for process_set in {hvd.global_process_set, pair}:
        layer = hvd.SyncBatchNorm(2, process_set=process_set)
        if process_set.included():
            layer(torch.randn(4, 2))
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert other._process_set is process_set, other._process_set


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
