# Caffe for processors alone, with the layers that LeNet needs: `make -f caffe.mk SOURCE=FOLDER' makes include, lib and python in
# the folder where it runs. Layers register themselves when the library is loaded, so one that is not here is only unknown; some
# are here because layer_factory names them. Several sources are compiled as one, and without optimisation: nearly all of the time
# goes into the headers of Boost and protobuf.
CXX ?= c++
PYTHON ?= /usr/bin/python3
# Definitions of specialised templates come before their uses.
basis = util/math_functions util/im2col util/hdf5 common syncedmem blob util/io util/benchmark util/signal_handler util/upgrade_proto \
	util/insert_splits util/util_img util/db
layers = internal_thread layer data_transformer layer_factory \
	$(patsubst %,layers/%_layer,accuracy base_conv base_data batch_norm conv eltwise inner_product loss lrn memory_data neuron pooling \
	power relu resize sigmoid softmax softmax_loss split tanh)
training = net solver util/bbox_util parallel data_reader util/blocking_queue \
	$(patsubst %,solvers/%_solver,sgd adadelta adagrad adam nesterov rmsprop)
flags = -std=c++17 -O0 -w -fPIC -DCPU_ONLY -DCAFFE_VERSION=0.0 -Iinclude -I$(SOURCE)/src $(shell pkg-config --cflags hdf5)
libraries = $(shell pkg-config --libs hdf5) -lhdf5_hl -lopenblas -lprotobuf -lglog -lgflags -lboost_filesystem -lboost_thread \
	-lboost_system
python_flags = -DWITH_PYTHON_LAYER $(shell $(PYTHON)-config --includes) -I$(shell $(PYTHON) -c 'import numpy; print(numpy.get_include())')
boost_python = boost_python$(shell $(PYTHON) -c 'import sys; print("%d%d" % sys.version_info[:2])')

all: lib/libcaffe.so python/caffe/_caffe.so

# The headers, the generated one among them.
include/caffe/proto/caffe.pb.h: $(SOURCE)/src/caffe/proto/caffe.proto
	mkdir -p include python objects lib
	cp -R $(SOURCE)/include/caffe include/
	cp -R $(SOURCE)/python/caffe python/
	mkdir -p include/caffe/proto python/caffe/proto
	protoc -I $(<D) --cpp_out=include/caffe/proto --python_out=python/caffe/proto $<
	touch python/caffe/proto/__init__.py

objects/pb.o: include/caffe/proto/caffe.pb.h
	$(CXX) $(flags) -c include/caffe/proto/caffe.pb.cc -o $@
objects/%.o: include/caffe/proto/caffe.pb.h
	printf '#include "caffe/%s.cpp"\n' $($*) >objects/$*.cpp
	$(CXX) $(flags) -c objects/$*.cpp -o $@
lib/libcaffe.so: objects/basis.o objects/layers.o objects/training.o objects/pb.o
	$(CXX) -shared -Wl,--no-undefined $^ $(libraries) -o $@

objects/_caffe.o: $(SOURCE)/python/caffe/_caffe.cpp include/caffe/proto/caffe.pb.h
	$(CXX) $(flags) $(python_flags) -c $< -o $@
python/caffe/_caffe.so: objects/_caffe.o lib/libcaffe.so
	$(CXX) -shared $< -Llib -lcaffe -Wl,-rpath,'$$ORIGIN/../../lib' -l$(boost_python) $(libraries) -o $@
