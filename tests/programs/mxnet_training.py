"""Trainer and Module: every rank also trains alone on the joined batch, which must give the same."""
import sys
import warnings

import mxnet as mx
import numpy as np

import aiacc.mxnet as hvd
from mxnet import autograd, gluon
from mxnet_checks import equal, mine, near, raises, run

STEPS, EACH = 4, 3  # samples of a rank in a step


def data(dtype="float32"):
    random = np.random.RandomState(5)
    x = random.randn(STEPS, EACH * hvd.size(), 2, 6, 6).astype(dtype)
    return x, random.randint(0, 4, (STEPS, EACH * hvd.size()))


def network(seed, deferred=False):
    mx.random.seed(seed)
    made = gluon.nn.HybridSequential()
    made.add(gluon.nn.Conv2D(5, 3, in_channels=0 if deferred else 2, activation="relu"), gluon.nn.Flatten(),
             gluon.nn.Dense(4, in_units=0 if deferred else 80))
    made.initialize(mx.init.Xavier())
    return made


def train(model, trainer, x, labels, size):
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for step in range(len(x)):
        with autograd.record():
            loss = loss_of(model(mx.nd.array(x[step], dtype=x.dtype)), mx.nd.array(labels[step]))
        loss.backward()
        trainer.step(size)
    return [one.data().asnumpy() for one in model.collect_params().values()]


def shares(x, labels):
    parts = [EACH] * hvd.size()
    return np.stack([mine(one, parts) for one in x]), np.stack([mine(one, parts) for one in labels])


def alone(optimizer="sgd", hybrid=False, **settings):
    model = network(1)
    if hybrid:
        model.hybridize()
    return train(model, gluon.Trainer(model.collect_params(), optimizer, settings or {"learning_rate": 0.1}, kvstore=None), *data(), EACH * hvd.size())


def together(optimizer="sgd", settings=None, hybrid=False, deferred=False, **keywords):
    model = network(1 if hvd.rank() == 0 else 99 + hvd.rank(), deferred)
    if hybrid:
        model.hybridize()
    hvd.broadcast_parameters(model.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(model.collect_params(), optimizer, settings or {"learning_rate": 0.1}, **keywords)
    return train(model, trainer, *shares(*data()), EACH), model, trainer


def check_trainer_is_training_on_the_joined_batch():
    for hybrid in (False, True):
        for one, other in zip(together(hybrid=hybrid)[0], alone(hybrid=hybrid)):
            near(one, other, 2e-6)
    for one, other in zip(together("adam", {"learning_rate": 0.01})[0], alone("adam", learning_rate=0.01)):
        near(one, other, 2e-4)
    for one, other in zip(together(gradient_predivide_factor=2.0)[0], alone()):
        near(one, other, 2e-6)
    for one, other in zip(together(compression=hvd.Compression.fp16)[0], alone()):
        near(one, other, 1e-3)


def check_parameters_of_unknown_shape():
    found, model, _ = together(deferred=True)
    for one in found:
        equal(hvd.broadcast(mx.nd.array(one), 0), one)
    assert model[0].weight.shape == (5, 2, 3, 3)


def check_gradients_are_in_the_engines_memory():
    if hvd.size() == 1:
        return
    _, model, trainer = together()
    from aiacc.mxnet import tensors
    engine = trainer._reducer.engine
    for slot in trainer._reducer.slots:
        assert tensors.address(slot.parameter.grad()) == engine.memory(slot.index)
    equal(model[0].weight.grad(), hvd.broadcast(model[0].weight.grad(), 0))
    model.collect_params().zero_grad()
    model[0].weight.grad_req = "add"  # another array: it is copied from then on
    train(model, trainer, *shares(*data()), EACH)
    equal(model[0].weight.data(), hvd.broadcast(model[0].weight.data(), 0))


def check_allreduce_grads_and_update():
    model = network(1)
    trainer = hvd.DistributedTrainer(model.collect_params(), "sgd", {"learning_rate": 0.0})
    x = mx.nd.ones((2, 2, 6, 6)) * (hvd.rank() + 1)
    with autograd.record():
        loss = model(x).sum()
    loss.backward()
    before = model[2].bias.grad().asnumpy()
    trainer.allreduce_grads()
    near(model[2].bias.grad(), before * hvd.size())
    trainer.update(1)


def check_module():
    """With a DistributedOptimizer, as Horovod's users have it."""
    def symbol():
        out = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=5, name="conv")
        out = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.Activation(out, act_type="relu")), num_hidden=4, name="full")
        return mx.sym.SoftmaxOutput(out, mx.sym.Variable("softmax_label"), name="softmax")

    def fit(x, labels, wrap):
        mx.random.seed(7 + (hvd.rank() if wrap else 0))
        module = mx.mod.Module(symbol())
        module.bind([("data", x.shape[1:])], [("softmax_label", labels.shape[1:])])
        module.init_params(mx.init.Xavier())
        optimizer = mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9, rescale_grad=1 / x.shape[1])
        if wrap:
            parameters, auxiliary = module.get_params()
            hvd.broadcast_parameters(parameters)
            module.set_params(parameters, auxiliary)
            optimizer = hvd.DistributedOptimizer(optimizer)
        module.init_optimizer(kvstore=None, optimizer=optimizer)
        for step in range(len(x)):
            module.forward_backward(mx.io.DataBatch([mx.nd.array(x[step])], [mx.nd.array(labels[step])]))
            module.update()
        return module.get_params()[0]
    found, expected = fit(*shares(*data()), True), fit(*data(), False)
    for name in expected:
        near(found[name], expected[name], 2e-6)


def check_trainer_with_a_kvstore():
    adam = {"learning_rate": 0.01}
    for optimizer, settings, on_store, tolerance in (("sgd", {"learning_rate": 0.1, "momentum": 0.9}, None, 5e-6), ("adam", adam, False, 2e-4),
                                                     ("adam", adam, True, 2e-4), ("rmsprop", {"learning_rate": 0.001}, True, 2e-4)):
        model = network(1)  # a Trainer brings parameters to all ranks behind the first backward only
        trainer = gluon.Trainer(model.collect_params(), optimizer, settings, kvstore=hvd.create("dist-sync-aiacc"), update_on_kvstore=on_store)
        for one, other in zip(train(model, trainer, *shares(*data()), EACH * hvd.size()), alone(optimizer, **settings)):
            near(one, other, tolerance)


def check_sparse_gradients():
    """An embedding whose gradient has the rows that each rank has used, beside a dense layer."""
    random = np.random.RandomState(6)
    words, labels = random.randint(0, 40, (STEPS, EACH * hvd.size(), 3)), random.randint(0, 4, (STEPS, EACH * hvd.size()))

    def learn(x, y, size, sparse, dtype, wrap, **settings):
        mx.random.seed(1)
        model = gluon.nn.HybridSequential()
        model.add(gluon.nn.Embedding(50, 5, sparse_grad=sparse, dtype=dtype), gluon.nn.Dense(4, in_units=15, dtype=dtype))
        model.initialize(mx.init.Uniform(0.5))
        trainer = hvd.DistributedTrainer(model.collect_params(), "sgd", {"learning_rate": 0.5}, **settings) if wrap else \
            gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.5}, kvstore=None)
        found = train(model, trainer, x, y, size)
        assert model[0].weight.grad().stype == ("row_sparse" if sparse else "default")
        return found, model[0].weight.grad()

    for dtype, tolerance in (("float32", 2e-6), ("float64", 1e-12)):
        expected, _ = learn(words, labels, EACH * hvd.size(), False, dtype, False)
        for settings in ({}, {"gradient_predivide_factor": 2.0}):
            found, gradient = learn(*shares(words, labels), EACH, True, dtype, True, **settings)
            for one, other in zip(found, expected):
                near(one, other, tolerance)
            equal(gradient.indices, np.unique(words[-1]))  # those of all ranks
            equal(hvd.broadcast(mx.nd.array(found[0]), 0), found[0].astype("float32"))


def check_bad_inputs():
    model = network(1)
    assert "compression is" in raises(ValueError, hvd.DistributedTrainer, model.collect_params(), "sgd", compression=3)
    assert "gradient_predivide_factor is 0" in raises(ValueError, hvd.DistributedTrainer, model.collect_params(), "sgd", gradient_predivide_factor=0)
    if hvd.size() > 1:
        other = gluon.nn.Dense(2 + hvd.rank(), in_units=2)
        other.initialize()
        trainer = hvd.DistributedTrainer(other.collect_params(), "sgd")
        with autograd.record():
            loss = other(mx.nd.ones((1, 2))).sum()
        loss.backward()
        assert "ranks disagree about" in raises(hvd.HorovodInternalError, trainer.step, 1)


def check_a_gradient_that_is_not_finite_leaves_out_the_step_on_all_ranks():
    model = gluon.nn.Dense(2, in_units=2, prefix="finite_")
    model.initialize(mx.init.One())
    trainer = hvd.DistributedTrainer(model.collect_params(), "sgd", {"learning_rate": 1.0})
    for step in range(3):
        x = mx.nd.ones((1, 2)) * (float("nan") if step == 1 and hvd.rank() == hvd.size() - 1 else 1)
        with autograd.record():
            loss = model(x).sum()
        loss.backward()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.step(1)
        if hvd.size() > 1:
            assert (len([one for one in caught if "changes no parameter" in str(one.message)]) == 1) == (step == 1)
    if hvd.size() > 1:
        equal(model.weight.data(), np.full((2, 2), -1.0))
        leave_out_rows()


def leave_out_rows():
    """The same of an embedding, of which the ranks use different rows."""
    model = gluon.nn.Embedding(9, 2, sparse_grad=True, prefix="finite_rows_")
    model.initialize(mx.init.One())
    trainer = hvd.DistributedTrainer(model.collect_params(), "sgd", {"learning_rate": 1.0})
    for step in range(3):
        with autograd.record():
            loss = model(mx.nd.array([hvd.rank(), 7])).sum() * (float("inf") if step == 1 and hvd.rank() == 0 else 1)
        loss.backward()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.step(1)
        assert any("of rank 0 is not finite" in str(one.message) for one in caught) == (step == 1)
    expected = np.ones((9, 2))
    expected[:hvd.size()] = 1 - 2 / hvd.size()
    expected[7] = -1
    near(model.weight.data(), expected, 1e-6)


if __name__ == "__main__":
    run({name: one for name, one in globals().items() if "finite" not in name or name in sys.argv}, sys.argv[1:])
