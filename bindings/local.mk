# bindings: the C ABI (what libaiacc exports) and the languages above it.
bindings_sources += \
	bindings/c/arguments.cc \
	bindings/c/arguments.h \
	bindings/c/blocks.cc \
	bindings/c/callbacks.cc \
	bindings/c/callbacks.h \
	bindings/c/collectives.cc \
	bindings/c/errors.cc \
	bindings/c/gradient.cc \
	bindings/c/gradient.h \
	bindings/c/groups.cc \
	bindings/c/guard.h \
	bindings/c/info.cc \
	bindings/c/kv.cc \
	bindings/c/kv.h \
	bindings/c/kv_arguments.cc \
	bindings/c/kv_arguments.h \
	bindings/c/kv_ends.cc \
	bindings/c/kv_saved.cc \
	bindings/c/life.cc \
	bindings/c/memory.cc \
	bindings/c/messages.cc \
	bindings/c/operators.cc \
	bindings/c/operators.h \
	bindings/c/registration.cc \
	bindings/c/report.cc \
	bindings/c/mesh.cc \
	bindings/c/mesh.h \
	bindings/c/requests.cc \
	bindings/c/sized.h \
	bindings/c/observe.cc \
	bindings/c/softmax.cc \
	bindings/c/state.cc \
	bindings/c/state.h \
	bindings/c/submit.cc \
	bindings/c/submit.h \
	bindings/c/syncbn.cc \
	bindings/c/syncbn.h

bindings_tests += \
	base/data/dtype.cc \
	bindings/c/arguments_test.cc \
	bindings/c/blocks_test.cc \
	bindings/c/collectives_test.cc \
	bindings/c/failures_test.cc \
	bindings/c/finalized_test.cc \
	bindings/c/registration_test.cc \
	bindings/c/report_test.cc \
	base/error.cc \
	base/third_party/fmt.cc \
	bindings/c/large_test.cc \
	bindings/c/matrix_test.cc \
	bindings/c/messages_test.cc \
	bindings/c/operators_test.cc \
	bindings/c/callbacks_test.cc \
	bindings/c/groups_left_test.cc \
	bindings/c/groups_test.cc \
	bindings/c/mesh_test.cc \
	bindings/c/requests_test.cc \
	bindings/c/kv_ends_test.cc \
	bindings/c/kv_test.cc \
	bindings/c/kv_together_test.cc \
	bindings/c/kv_world_test.h \
	bindings/c/softmax_test.cc \
	bindings/c/syncbn_test.cc \
	bindings/c/syncbn_world_test.h \
	tests/abi_world.h \
	tests/variable.h \
	tests/affine_op.h \
	tests/surface_cases.h

EXTRA_DIST += bindings/c/aiacc.map bindings/c/aiacc.pc.in

# The Python package: pip installs it, from here or from an sdist; nothing of it is compiled. `make install' puts it where
# aiaccrun finds what --provide names, and where a Python without it takes it from.
python_package = \
	bindings/python/aiacc/__init__.py \
	bindings/python/aiacc/_abi.py \
	bindings/python/aiacc/_arguments.py \
	bindings/python/aiacc/_horovod/__init__.py \
	bindings/python/aiacc/_horovod/basics.py \
	bindings/python/aiacc/_horovod/callers.py \
	bindings/python/aiacc/_horovod/calls.py \
	bindings/python/aiacc/_horovod/channel.py \
	bindings/python/aiacc/_horovod/data.py \
	bindings/python/aiacc/_horovod/elastic.py \
	bindings/python/aiacc/_horovod/exceptions.py \
	bindings/python/aiacc/_horovod/handles.py \
	bindings/python/aiacc/_horovod/joining.py \
	bindings/python/aiacc/_horovod/launch.py \
	bindings/python/aiacc/_horovod/named.py \
	bindings/python/aiacc/_horovod/named_table.py \
	bindings/python/aiacc/_horovod/operations.py \
	bindings/python/aiacc/_horovod/order.py \
	bindings/python/aiacc/_horovod/process_sets.py \
	bindings/python/aiacc/_horovod/unnegotiated.py \
	bindings/python/aiacc/_horovod/util.py \
	bindings/python/aiacc/_library.py \
	bindings/python/aiacc/_torch_autoload.py \
	bindings/python/aiacc/_version.py \
	bindings/python/aiacc/buffers.py \
	bindings/python/aiacc/caffe/__init__.py \
	bindings/python/aiacc/caffe/sync.py \
	bindings/python/aiacc/errors.py \
	bindings/python/aiacc/gradients.py \
	bindings/python/aiacc/groups.py \
	bindings/python/aiacc/kvstore.py \
	bindings/python/aiacc/mesh.py \
	bindings/python/aiacc/mxnet/__init__.py \
	bindings/python/aiacc/mxnet/_engine.py \
	bindings/python/aiacc/mxnet/_gradients.py \
	bindings/python/aiacc/mxnet/_kv_entry.py \
	bindings/python/aiacc/mxnet/_kv_servers.py \
	bindings/python/aiacc/mxnet/_kv_updater.py \
	bindings/python/aiacc/mxnet/_operations.py \
	bindings/python/aiacc/mxnet/_sparse_gradients.py \
	bindings/python/aiacc/mxnet/compression.py \
	bindings/python/aiacc/mxnet/functions.py \
	bindings/python/aiacc/mxnet/kvstore.py \
	bindings/python/aiacc/mxnet/mpi_ops.py \
	bindings/python/aiacc/mxnet/optimizer.py \
	bindings/python/aiacc/mxnet/perseus.py \
	bindings/python/aiacc/mxnet/sharded_softmax.py \
	bindings/python/aiacc/mxnet/sync_batch_norm.py \
	bindings/python/aiacc/mxnet/tensors.py \
	bindings/python/aiacc/mxnet/trainer.py \
	bindings/python/aiacc/provide/gloo/sitecustomize.py \
	bindings/python/aiacc/provide/gloo_groups.py \
	bindings/python/aiacc/provide/horovod/horovod/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/common/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/common/basics.py \
	bindings/python/aiacc/provide/horovod/horovod/common/elastic.py \
	bindings/python/aiacc/provide/horovod/horovod/common/exceptions.py \
	bindings/python/aiacc/provide/horovod/horovod/common/process_sets.py \
	bindings/python/aiacc/provide/horovod/horovod/common/util.py \
	bindings/python/aiacc/provide/horovod/horovod/data/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/data/data_loader_base.py \
	bindings/python/aiacc/provide/horovod/horovod/keras/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/keras/callbacks.py \
	bindings/python/aiacc/provide/horovod/horovod/keras/elastic.py \
	bindings/python/aiacc/provide/horovod/horovod/mxnet/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/mxnet/compression.py \
	bindings/python/aiacc/provide/horovod/horovod/mxnet/functions.py \
	bindings/python/aiacc/provide/horovod/horovod/mxnet/mpi_ops.py \
	bindings/python/aiacc/provide/horovod/horovod/runner/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/runner/common/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/runner/common/util/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/runner/common/util/env.py \
	bindings/python/aiacc/provide/horovod/horovod/runner/util/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/runner/util/threads.py \
	bindings/python/aiacc/provide/horovod/horovod/tensorflow/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/tensorflow/compression.py \
	bindings/python/aiacc/provide/horovod/horovod/tensorflow/elastic.py \
	bindings/python/aiacc/provide/horovod/horovod/tensorflow/functions.py \
	bindings/python/aiacc/provide/horovod/horovod/tensorflow/keras/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/tensorflow/keras/callbacks.py \
	bindings/python/aiacc/provide/horovod/horovod/tensorflow/keras/elastic.py \
	bindings/python/aiacc/provide/horovod/horovod/tensorflow/mpi_ops.py \
	bindings/python/aiacc/provide/horovod/horovod/tensorflow/sync_batch_norm.py \
	bindings/python/aiacc/provide/horovod/horovod/torch/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/torch/compression.py \
	bindings/python/aiacc/provide/horovod/horovod/torch/elastic/__init__.py \
	bindings/python/aiacc/provide/horovod/horovod/torch/elastic/sampler.py \
	bindings/python/aiacc/provide/horovod/horovod/torch/elastic/state.py \
	bindings/python/aiacc/provide/horovod/horovod/torch/functions.py \
	bindings/python/aiacc/provide/horovod/horovod/torch/mpi_ops.py \
	bindings/python/aiacc/provide/horovod/horovod/torch/optimizer.py \
	bindings/python/aiacc/provide/horovod/horovod/torch/sync_batch_norm.py \
	bindings/python/aiacc/provide/load_aiacc.py \
	bindings/python/aiacc/provide/perseus/perseus/__init__.py \
	bindings/python/aiacc/provide/perseus/perseus/mxnet/__init__.py \
	bindings/python/aiacc/provide/perseus/perseus/tensorflow/__init__.py \
	bindings/python/aiacc/provide/perseus/perseus/tensorflow/horovod/__init__.py \
	bindings/python/aiacc/provide/perseus/perseus/tensorflow/horovod/keras/__init__.py \
	bindings/python/aiacc/provide/perseus/perseus/tensorflow/horovod/keras/callbacks.py \
	bindings/python/aiacc/provide/perseus/perseus/torch/__init__.py \
	bindings/python/aiacc/provide/perseus/perseus/torch/horovod.py \
	bindings/python/aiacc/py.typed \
	bindings/python/aiacc/requests.py \
	bindings/python/aiacc/run.py \
	bindings/python/aiacc/runtime.py \
	bindings/python/aiacc/softmax.py \
	bindings/python/aiacc/syncbn.py \
	bindings/python/aiacc/tensorflow/__init__.py \
	bindings/python/aiacc/tensorflow/_c_api.py \
	bindings/python/aiacc/tensorflow/_gradients.py \
	bindings/python/aiacc/tensorflow/_kernel.py \
	bindings/python/aiacc/tensorflow/_operations.py \
	bindings/python/aiacc/tensorflow/compression.py \
	bindings/python/aiacc/tensorflow/elastic.py \
	bindings/python/aiacc/tensorflow/functions.py \
	bindings/python/aiacc/tensorflow/gradient_tape.py \
	bindings/python/aiacc/tensorflow/keras/__init__.py \
	bindings/python/aiacc/tensorflow/keras/callbacks.py \
	bindings/python/aiacc/tensorflow/keras/elastic.py \
	bindings/python/aiacc/tensorflow/mpi_ops.py \
	bindings/python/aiacc/tensorflow/optimizer.py \
	bindings/python/aiacc/tensorflow/sync_batch_norm.py \
	bindings/python/aiacc/tensorflow/tensors.py \
	bindings/python/aiacc/torch/__init__.py \
	bindings/python/aiacc/torch/_adasum.py \
	bindings/python/aiacc/torch/_adasum_optimizer.py \
	bindings/python/aiacc/torch/_arguments.py \
	bindings/python/aiacc/torch/_averages.py \
	bindings/python/aiacc/torch/_blocks.py \
	bindings/python/aiacc/torch/_compile.py \
	bindings/python/aiacc/torch/_counted.py \
	bindings/python/aiacc/torch/_dgc.py \
	bindings/python/aiacc/torch/_functions.py \
	bindings/python/aiacc/torch/_gradients.py \
	bindings/python/aiacc/torch/_memory.py \
	bindings/python/aiacc/torch/_monitored.py \
	bindings/python/aiacc/torch/_operations.py \
	bindings/python/aiacc/torch/_overlap.py \
	bindings/python/aiacc/torch/_profile.py \
	bindings/python/aiacc/torch/_reductions.py \
	bindings/python/aiacc/torch/_shim.cc \
	bindings/python/aiacc/torch/_shim.py \
	bindings/python/aiacc/torch/_shim_work.h \
	bindings/python/aiacc/torch/_sparse.py \
	bindings/python/aiacc/torch/_sparse_gradients.py \
	bindings/python/aiacc/torch/_typed_future.py \
	bindings/python/aiacc/torch/_updates.py \
	bindings/python/aiacc/torch/_used_rows.py \
	bindings/python/aiacc/torch/_wrapping.py \
	bindings/python/aiacc/torch/autograd.py \
	bindings/python/aiacc/torch/backend.py \
	bindings/python/aiacc/torch/build.py \
	bindings/python/aiacc/torch/compression.py \
	bindings/python/aiacc/torch/elastic/__init__.py \
	bindings/python/aiacc/torch/elastic/sampler.py \
	bindings/python/aiacc/torch/elastic/state.py \
	bindings/python/aiacc/torch/functions.py \
	bindings/python/aiacc/torch/gossip.py \
	bindings/python/aiacc/torch/kvstore.py \
	bindings/python/aiacc/torch/learning_rates.py \
	bindings/python/aiacc/torch/local_sgd.py \
	bindings/python/aiacc/torch/mpi_ops.py \
	bindings/python/aiacc/torch/optimizer.py \
	bindings/python/aiacc/torch/partial_fc.py \
	bindings/python/aiacc/torch/process_group.py \
	bindings/python/aiacc/torch/replicated_vars.py \
	bindings/python/aiacc/torch/sharded_softmax.py \
	bindings/python/aiacc/torch/sync_batch_norm.py \
	bindings/python/aiacc/torch/tensors.py \
	bindings/python/aiacc/torch/work.py
EXTRA_DIST += \
	$(python_package) \
	bindings/python/MANIFEST.in \
	bindings/python/README.md \
	bindings/python/mxnet-venv \
	bindings/python/pyproject.toml \
	bindings/python/setup.py \
	bindings/python/tensorflow-venv \
	bindings/python/torch-venv

# Compiled too, where there is a Python: those who may not write there would compile it at each import, each rank anew.
pythondatadir = $(pkgdatadir)/python
install-python-package:
	@for file in $(python_package:bindings/python/%=%); do \
	  $(MKDIR_P) "$(DESTDIR)$(pythondatadir)/$$(dirname $$file)" && \
	  $(INSTALL_DATA) "$(srcdir)/bindings/python/$$file" "$(DESTDIR)$(pythondatadir)/$$file" || exit 1; done
	@python3 -m compileall -q -s "$(DESTDIR)" "$(DESTDIR)$(pythondatadir)" 2>/dev/null || :
.PHONY: install-python-package

# PyTorch, for demo-torch and the tests.
torch_venv = $(abs_builddir)/torch-venv
torch-venv:
	@$(srcdir)/bindings/python/torch-venv $(torch_venv)
.PHONY: torch-venv

# MXNet, for the tests and examples.
mxnet_venv = $(abs_builddir)/mxnet-venv
mxnet-venv:
	@$(srcdir)/bindings/python/mxnet-venv $(mxnet_venv)
.PHONY: mxnet-venv

# TensorFlow, likewise.
tensorflow_venv = $(abs_builddir)/tensorflow-venv
tensorflow-venv:
	@$(srcdir)/bindings/python/tensorflow-venv $(tensorflow_venv)
.PHONY: tensorflow-venv

# The pkg-config file, written where it is installed: `make install prefix=DIR' may name another place than configure did. Folders
# below the prefix are told by it, so that `pkg-config --define-prefix' serves a tree that was moved. Programs find the library where it is,
# also where the loader does not look or, as in /usr/local/lib, has not looked since.
pkgconfigdir = $(libdir)/pkgconfig
install-data-local: install-python-package
	@$(MKDIR_P) '$(DESTDIR)$(pkgconfigdir)'
	case '$(libdir)' in /usr/lib* | /lib*) run_path= ;; *) run_path=' -Wl,-rpath,$${libdir}' ;; esac; \
	sed -e 's,@version\@,$(PACKAGE_VERSION),' -e 's,@prefix\@,$(prefix),' -e 's,@bindir\@,$(bindir),' -e 's,@libdir\@,$(libdir),' \
	  -e 's,@includedir\@,$(includedir),' -e 's,=$(prefix)/,=$${prefix}/,' -e "s|@run_path\@|$$run_path|" \
	  $(srcdir)/bindings/c/aiacc.pc.in >'$(DESTDIR)$(pkgconfigdir)/aiacc.pc'
uninstall-local:
	rm -f '$(DESTDIR)$(pkgconfigdir)/aiacc.pc'
	rm -rf '$(DESTDIR)$(pythondatadir)'
