# include: the installed headers, in $(includedir)/aiacc.
pkginclude_HEADERS += \
	include/aiacc/aiacc.h \
	include/aiacc/aiacc.hpp \
	include/aiacc/aiacc_caffe.hpp \
	include/aiacc/blocks.hpp \
	include/aiacc/calls.hpp \
	include/aiacc/context.hpp \
	include/aiacc/elements.hpp \
	include/aiacc/error.hpp \
	include/aiacc/gradient.h \
	include/aiacc/kv.h \
	include/aiacc/observe.h \
	include/aiacc/softmax.h \
	include/aiacc/syncbn.h \
	include/aiacc/group.hpp \
	include/aiacc/memory.hpp \
	include/aiacc/mesh.hpp \
	include/aiacc/operators.hpp \
	include/aiacc/options.hpp \
	include/aiacc/request.hpp
