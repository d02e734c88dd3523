# examples: programs on the C ABI.
bin_PROGRAMS += aiacc-digits
aiacc_digits_SOURCES = \
	examples/digits/digits.cc \
	examples/digits/images.cc \
	examples/digits/images.h \
	examples/digits/network.cc \
	examples/digits/network.h
aiacc_digits_CXXFLAGS = $(program_flags)
aiacc_digits_LDADD = libaiacc.la
aiacc_digits_LDFLAGS = $(relocatable)
dist_pkgdata_DATA = examples/digits/digits.txt
EXTRA_DIST += examples/arcface/README.md examples/arcface/arcface.cc examples/kvstore/README.md examples/kvstore/kvstore.cc examples/digits/README.md examples/digits/demo examples/digits/demo-hosts

# The first job: a digit classifier, trained on 4 ranks, and the same on one.
demo: stage-demo
	@$(srcdir)/examples/digits/demo $(stage)$(bindir) $(stage)$(pkgdatadir)/digits.txt
# The same over three hosts, made as network namespaces.
demo-hosts: stage-demo
	@$(srcdir)/examples/digits/demo-hosts $(stage)$(bindir) $(stage)$(pkgdatadir)/digits.txt $(srcdir)/tests/namespace_hosts.py
# A CNN in PyTorch, in Horovod's style, on 4 ranks and on one, with a picture of its first steps. Makes its virtual environment itself.
EXTRA_DIST += \
	examples/caffe/lenet.prototxt \
	examples/caffe/lenet_digits.cc \
	examples/caffe/solver.prototxt \
	examples/mxnet/digits_arcface.py \
	examples/mxnet/digits_data.py \
	examples/mxnet/digits_module.py \
	examples/mxnet/digits_trainer.py \
	examples/pytorch/demo \
	examples/pytorch/digits_data.py \
	examples/pytorch/digits_ddp.py \
	examples/pytorch/digits_fsdp2.py \
	examples/pytorch/digits_horovod.py \
	examples/pytorch/digits_local_sgd.py \
	examples/pytorch/timeline_picture.py \
	examples/tensorflow/digits.py
demo-torch: stage-demo torch-venv
	@$(srcdir)/examples/pytorch/demo $(stage)$(bindir) $(torch_venv)/bin/python $(abs_srcdir)/bindings/python $(stage)$(pkgdatadir)/digits.txt
.PHONY: demo demo-hosts demo-torch
