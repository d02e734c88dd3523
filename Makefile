# The front door of a checkout: `make' on a bare Debian installs what the build needs (dependencies.debian), bootstraps,
# configures in build/ and builds there; every other goal (check, demo, bench-..., install, dist, ...) goes to build/ too.
# CONFIGURE_FLAGS are used when the build directory is first configured; BUILD names another build directory.
BUILD ?= build
CONFIGURE_FLAGS ?=

# All cores, unless the caller said how many jobs.
jobs = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
# With a count of what is compiled.
build = MAKE="$(MAKE)" build-aux/make-counted $(BUILD)

.NOTPARALLEL:
.SUFFIXES:
.PHONY: all clean distclean lint FORCE

all: $(BUILD)/Makefile
	+@$(build) all $(jobs)

# PyTorch, MXNet and TensorFlow come by pip into virtual environments in the build directory.
demo-torch torch-venv mxnet-venv tensorflow-venv: $(BUILD)/Makefile $(BUILD)/.packages-python FORCE
	+@$(build) $@ $(jobs)

# Horovod, for benchmarks beside it, is compiled against the system's torch.
horovod-venv: $(BUILD)/Makefile $(BUILD)/.packages-python $(BUILD)/.packages-torch $(BUILD)/.packages-horovod FORCE
	+@$(build) $@ $(jobs)

# Caffe is built in the build directory, and its source comes by pip.
check-caffe: $(BUILD)/Makefile $(BUILD)/.packages-python $(BUILD)/.packages-caffe FORCE
	+@$(build) $@ $(jobs)

# Two virtual machines run what was built, over verbs: it must have been configured with UCX and libfabric.
check-roce: $(BUILD)/.packages-networks $(BUILD)/.packages-roce $(BUILD)/Makefile FORCE
	+@$(build) $@ $(jobs)

# User-mode Linux runs what was built.
check-qos: $(BUILD)/.packages-qos $(BUILD)/Makefile FORCE
	+@$(build) $@ $(jobs)

# Any goal that is not named here. FORCE, because some goals are also names of folders.
%: $(BUILD)/Makefile FORCE
	+@$(build) $@ $(jobs)

clean:
	+@if test -f $(BUILD)/Makefile; then $(build) clean $(jobs); fi

distclean:
	rm -rf $(BUILD)

# clang-tidy looks at what differs from main; `make lint LINT=all' at everything.
lint: $(BUILD)/Makefile $(BUILD)/.packages-ci
	@.ci/lint $(LINT)

# Later changes of configure.ac, Makefile.am and local.mk are noticed by automake's own rules in the build directory.
$(BUILD)/Makefile: | $(BUILD)/.packages-build configure
	cd $(BUILD) && $(CURDIR)/configure $(CONFIGURE_FLAGS)

configure: | $(BUILD)/.packages-build
	@mkdir -p build-aux/m4
	autoreconf --force --install

# The stamp is renewed when the list changes.
$(BUILD)/.packages-%: dependencies.debian
	@build-aux/packages $*
	@mkdir -p $(BUILD) && touch $@

# Files, never goals to pass on.
Makefile dependencies.debian: ;
FORCE: ;
