# docs: what the release tarball carries for reading.
EXTRA_DIST += CHANGELOG.md CONTRIBUTING.md LICENSE README.md
EXTRA_DIST += docs/architecture.md docs/bootstrap.md docs/caffe.md docs/compatibility.md docs/dependencies.md docs/mxnet.md docs/performance.md docs/pytorch.md docs/status.md docs/tensorflow.md \
	docs/wire-protocol.md
