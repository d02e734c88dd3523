"""SyncBatchNorm and ShardedSoftmax: every rank also computes the joined batch alone, which must give the same."""
import sys

import mxnet as mx
import numpy as np

import aiacc.mxnet as hvd
from mxnet import autograd, gluon
from mxnet_checks import equal, mine, near, raises, run


def sizes():
    """Ranks have batches of different sizes."""
    return [3 + rank for rank in range(hvd.size())]


# --- SyncBatchNorm

def exact(x, weights, gamma, beta, eps):
    """(y, dx, dgamma, dbeta, mean, variance) of channels second, in fp64."""
    others = (0, *range(2, x.ndim))
    form = (1, -1) + (1,) * (x.ndim - 2)
    mean, variance = x.mean(others), x.var(others)
    inverse = 1 / np.sqrt(variance + eps)
    normal = (x - mean.reshape(form)) * inverse.reshape(form)
    dgamma, dbeta, count = (weights * normal).sum(others), weights.sum(others), x.size / x.shape[1]
    dx = (weights - dbeta.reshape(form) / count - normal * dgamma.reshape(form) / count) * (gamma * inverse).reshape(form)
    return normal * gamma.reshape(form) + beta.reshape(form), dx, dgamma, dbeta, mean, variance


def compare(shape, dtype="float32", mean=5.0, deviation=3.0, tolerance=2e-6, last=False, hybrid=False, scale=True, gradient="write"):
    random = np.random.RandomState(6)
    whole = (random.randn(sum(sizes()), *shape) * deviation + mean).astype(dtype)
    weights, gamma, beta = random.randn(*whole.shape).astype(dtype), random.randn(shape[0]), random.randn(shape[0])
    if not scale:
        gamma = np.ones(shape[0])
    y, dx, dgamma, dbeta, of_mean, of_variance = exact(*(one.astype(np.float64) for one in (whole, weights, gamma, beta)), 1e-5)
    order = (0, *range(2, whole.ndim), 1) if last else tuple(range(whole.ndim))
    norm = hvd.SyncBatchNorm(axis=whole.ndim - 1 if last else 1, scale=scale, in_channels=shape[0])
    norm.initialize()
    norm.cast(dtype)
    norm.gamma.set_data(mx.nd.array(gamma, dtype=norm.gamma.dtype))
    norm.beta.set_data(mx.nd.array(beta, dtype=norm.beta.dtype))
    if hybrid:
        norm.hybridize()
    given = mx.nd.array(mine(whole, sizes()).transpose(order), dtype=dtype)
    given.attach_grad(gradient)
    factor = mx.nd.array(mine(weights, sizes()).transpose(order), dtype=dtype)
    for _ in range(2 if gradient == "add" else 1):
        with autograd.record():
            result = norm(given)
            loss = (result * factor).sum()
        loss.backward()
    rounding = 2.0 ** -10 if dtype == "float16" else 0.0
    assert result.dtype == np.dtype(dtype)
    near(result, mine(y, sizes()).transpose(order), tolerance + rounding)
    times = 2 if gradient == "add" else 1
    near(given.grad, times * mine(dx, sizes()).transpose(order), tolerance + rounding * times)
    if scale:
        near(hvd.allreduce(norm.gamma.grad(), op=hvd.Sum), dgamma, tolerance + rounding)
    near(hvd.allreduce(norm.beta.grad(), op=hvd.Sum), dbeta, tolerance + rounding)
    if gradient == "write":
        near(norm.running_mean.data(), 0.1 * of_mean, tolerance)
        near(norm.running_var.data(), 0.9 + 0.1 * of_variance, tolerance)
    for one in (norm.running_mean, norm.running_var):
        equal(hvd.broadcast(one.data(), 0), one.data())


def check_syncbn_is_batch_norm_of_the_joined_batch():
    for shape in ((3,), (3, 5), (20, 5, 2), (3, 2, 3, 2)):
        compare(shape), compare(shape, hybrid=True, last=True), compare(shape, scale=False)
    compare((5, 6, 7), "float64", tolerance=1e-12), compare((5, 6, 7), "float16")
    compare((4, 9, 9), mean=1e4, deviation=1.0, tolerance=1e-5)
    compare((3, 4, 4), gradient="add")


def check_syncbn_in_evaluation_and_as_a_symbol():
    random = np.random.RandomState(2)
    x = mx.nd.array(random.randn(2, 3, 4, 4))
    # MXNet's own gradient in evaluation is not that of what it computed, unless it is told to use the running statistics.
    norm, plain = hvd.SyncBatchNorm(in_channels=3), gluon.nn.BatchNorm(in_channels=3, use_global_stats=True)
    for one in (norm, plain):
        one.initialize(force_reinit=True)
        one.running_mean.set_data(mx.nd.array([1, 2, 3]))
        one.gamma.set_data(mx.nd.array([1, 2, 3]))
    gradients = []
    for one in (norm, plain):
        given = x.copy()
        given.attach_grad()
        with autograd.record(train_mode=False):
            result = one(given)
        result.backward()
        gradients.append((result, given.grad, one.gamma.grad(), one.beta.grad()))
    for one, other in zip(*gradients):
        near(one, other, 1e-5)
    symbol = hvd.sync_batch_norm_symbol(mx.sym.Variable("data"), name="bn", fix_gamma=False, eps=1e-5)
    assert symbol.list_arguments() == ["data", "bn_gamma", "bn_beta"] and symbol.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    bound = symbol.simple_bind(mx.cpu(), data=(2, 3, 4, 4))
    bound.arg_dict["bn_gamma"][:], bound.aux_dict["bn_moving_var"][:] = 1, 1
    own = random.randn(2 * hvd.size(), 3, 4, 4)
    y, dx, *_ = exact(own, np.ones_like(own), np.ones(3), np.zeros(3), 1e-5)
    near(bound.forward(is_train=True, data=mx.nd.array(own[2 * hvd.rank():][:2]))[0], y[2 * hvd.rank():][:2], 2e-6)
    bound.backward(mx.nd.ones((2, 3, 4, 4)))
    near(bound.grad_dict["data"], dx[2 * hvd.rank():][:2], 2e-6)


def check_syncbn_between_convolutions():
    """oneDNN has layouts of its own before and behind it. Alone: the same model with MXNet's layer."""
    def made(layer, hybrid):
        mx.random.seed(3)
        model = gluon.nn.HybridSequential()
        model.add(gluon.nn.Conv2D(16, 3, in_channels=3), layer(in_channels=16), gluon.nn.Activation("relu"), gluon.nn.MaxPool2D(2),
                  gluon.nn.Conv2D(8, 3, in_channels=16), gluon.nn.Flatten(), gluon.nn.Dense(5))
        model.initialize(mx.init.Xavier())
        if hybrid:
            model.hybridize()
        return model

    def results(model, x, factor):
        before = model(mx.nd.array(x))
        with autograd.record():
            loss = (model(mx.nd.array(x)) * mx.nd.array(factor)).sum()
        loss.backward()
        return before, [model[i].weight.grad() for i in (0, 4, 6)]
    random = np.random.RandomState(8)
    for hybrid in (False, True):
        for each in (1, 16, 5):
            whole, factor = random.randn(each * hvd.size(), 3, 10, 10), random.randn(each * hvd.size(), 5)
            before, gradients = results(made(gluon.nn.BatchNorm, False), whole, factor)
            parts = [each] * hvd.size()
            own_before, own_gradients = results(made(hvd.SyncBatchNorm, hybrid), mine(whole, parts), mine(factor, parts))
            near(own_before, mine(before.asnumpy(), parts), 1e-4)
            for one, other in zip(own_gradients, gradients):
                near(hvd.allreduce(one, op=hvd.Sum), other, 1e-4)


def check_parallel_branches():
    """Layers that MXNet may run at the same time, in another order on each rank."""
    norms = [hvd.SyncBatchNorm(in_channels=4) for _ in range(6)]
    for one in norms:
        one.initialize()
        one.hybridize()
    x = mx.nd.random.normal(shape=(4, 4, 5))
    x.attach_grad()
    for _ in range(5):
        with autograd.record():
            total = sum(one(x * (i + 1)) for i, one in enumerate(norms))
        total.backward()
    x.grad.wait_to_read()
    equal(hvd.broadcast(norms[3].running_mean.data(), 0), norms[3].running_mean.data())


# --- ShardedSoftmax

def reference(x, w, labels, margin, size, scale):
    """(loss, dx, dw) by MXNet alone."""
    x, w = (mx.nd.array(one, dtype="float64") for one in (x, w))
    x.attach_grad(), w.attach_grad()
    own = mx.nd.array(labels, dtype="float64")
    with autograd.record():
        if margin is None:
            logits = mx.nd.dot(x, w, transpose_b=True)
        else:
            logits = mx.nd.dot(x / x.norm(axis=1, keepdims=True), w / w.norm(axis=1, keepdims=True), transpose_b=True)
            chosen = mx.nd.pick(logits, own)
            moved = chosen - size if margin == "cos" else mx.nd.cos(mx.nd.arccos(chosen) + size)
            logits = logits + mx.nd.broadcast_mul((moved - chosen).reshape((-1, 1)), mx.nd.one_hot(own, w.shape[0], dtype="float64"))
        loss = -mx.nd.pick(mx.nd.log_softmax(logits * scale), own).mean()
    loss.backward()
    return loss, x.grad.asnumpy(), w.grad.asnumpy()


def compare_softmax(margin=None, size=0.3, scale=1.0, classes=11, dtype="float32", tolerance=2e-6, labels=None, **keywords):
    random = np.random.RandomState(4)
    whole, weight = random.randn(sum(sizes()), 6).astype(dtype), random.randn(classes, 6).astype(dtype)
    of_all = random.randint(0, classes, sum(sizes())) if labels is None else np.full(sum(sizes()), labels)
    expected, dx, dw = reference(whole, weight, of_all, margin, size, scale)
    block = hvd.ShardedSoftmax(6, classes, margin, size, scale, averaged=False, dtype=dtype, **keywords)
    block.initialize()
    shard = slice(block.first_class, block.first_class + block.classes)
    block.weight.set_data(mx.nd.array(weight[shard], dtype=dtype))
    features = mx.nd.array(mine(whole, sizes()), dtype=dtype)
    features.attach_grad()
    with autograd.record():
        loss = block(features, mx.nd.array(mine(of_all, sizes())))
    loss.backward()
    near(loss, expected, tolerance), near(features.grad, mine(dx, sizes()), tolerance), near(block.weight.grad(), dw[shard], tolerance)


def check_softmax_equals_one_process():
    for classes in (11, max(2, hvd.size()), 30):
        compare_softmax(classes=classes)
    compare_softmax(labels=0), compare_softmax(labels=10)
    compare_softmax(dtype="float64", tolerance=1e-12)
    for margin in ("arc", "cos"):
        compare_softmax(margin, dtype="float64", scale=64.0, tolerance=1e-10)
        compare_softmax(margin, scale=8.0, tolerance=1e-5)
    compare_softmax(scale=1e4, dtype="float64", tolerance=1e-9)


def check_softmax_of_some_classes():
    block = hvd.ShardedSoftmax(4, 400, sample_rate=0.1, seed=3)
    block.initialize()
    labels = [0, 399, 7]
    with autograd.record():
        loss = block(mx.nd.random.normal(shape=(3, 4)), mx.nd.array(labels))
    loss.backward()
    used = set(np.flatnonzero((block.weight.grad().asnumpy() != 0).any(1)) + block.first_class)
    own = [label for label in labels if block.first_class <= label < block.first_class + block.classes]
    assert set(own) <= used and len(used) == max(len(own), int(0.1 * block.classes))


def check_optimizers_leave_unused_classes_alone():
    for name, settings in (("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}), ("adam", {"learning_rate": 0.1, "wd": 0.01})):
        for dtype in ("float32", "float64"):
            pair = [hvd.ShardedSoftmax(4, 300, sample_rate=0.1, seed=3, only_used=only_used, dtype=dtype) for only_used in (True, False)]
            for one in pair:
                one.initialize()
            pair[1].weight.set_data(pair[0].weight.data())
            trainers = [gluon.Trainer(one.collect_params(), name, settings, kvstore=None) for one in pair]
            for step in range(3):
                before = pair[0].weight.data().asnumpy()
                features, labels = mx.nd.random.normal(shape=(3, 4), dtype=dtype), mx.nd.array(np.random.randint(0, 300, 3))
                pair[1].weight.set_data(pair[0].weight.data())
                for one, trainer in zip(pair, trainers):
                    with autograd.record():
                        loss = one(features, labels)
                    loss.backward()
                gradient = pair[0].weight.grad()
                assert gradient.stype == "row_sparse"
                used = gradient.indices.asnumpy().astype(int)
                assert 0 < len(used) < pair[0].classes
                near(gradient.tostype("default"), pair[1].weight.grad(), 1e-6)
                trainers[0].step(1)
                after, others = pair[0].weight.data().asnumpy(), np.setdiff1d(np.arange(pair[0].classes), used)
                equal(after[others], before[others])
                assert (after[used] != before[used]).any(1).all()


def check_bad_inputs():
    block = hvd.ShardedSoftmax(3, 8)
    block.initialize()
    assert "give N x 3 and N" in raises(ValueError, block, mx.nd.zeros((2, 4)), mx.nd.zeros((2,)))
    assert "classes are 0 to 7" in raises(ValueError, block, mx.nd.zeros((2, 3)), mx.nd.full((2,), 8))
    assert "'arc' or 'cos'" in raises(ValueError, hvd.ShardedSoftmax, 3, 8, "arcs")
    assert "sample_rate is 0" in raises(ValueError, hvd.ShardedSoftmax, 3, 8, sample_rate=0)
    assert "each step uses all classes" in raises(ValueError, hvd.ShardedSoftmax, 3, 8, only_used=True)
    if hvd.size() > 1:
        assert "each has a class" in raises(ValueError, hvd.ShardedSoftmax, 3, 1)
    block(mx.nd.ones((2, 3)), mx.nd.zeros((2,)))  # nothing is over


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
