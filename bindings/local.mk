# bindings: the C ABI (what libaiacc exports) and the languages above it.
bindings_sources += \
	bindings/c/arguments.cc \
	bindings/c/arguments.h \
	bindings/c/blocks.cc \
	bindings/c/callbacks.cc \
	bindings/c/callbacks.h \
	bindings/c/collectives.cc \
	bindings/c/errors.cc \
	bindings/c/groups.cc \
	bindings/c/guard.h \
	bindings/c/info.cc \
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
	bindings/c/state.cc \
	bindings/c/state.h \
	bindings/c/submit.cc \
	bindings/c/submit.h

bindings_tests += \
	base/data/dtype.cc \
	bindings/c/arguments_test.cc \
	bindings/c/blocks_test.cc \
	bindings/c/collectives_test.cc \
	bindings/c/failures_test.cc \
	bindings/c/registration_test.cc \
	bindings/c/report_test.cc \
	base/json.cc \
	base/json_parse.cc \
	base/json_text.cc \
	base/error.cc \
	base/third_party/fmt.cc \
	bindings/c/large_test.cc \
	bindings/c/matrix_test.cc \
	bindings/c/messages_test.cc \
	bindings/c/operators_test.cc \
	bindings/c/callbacks_test.cc \
	bindings/c/groups_test.cc \
	bindings/c/mesh_test.cc \
	bindings/c/requests_test.cc \
	tests/abi_world.h \
	tests/variable.h \
	tests/affine_op.h \
	tests/surface_cases.h

EXTRA_DIST += bindings/c/aiacc.map bindings/c/aiacc.pc.in

# The pkg-config file, written where it is installed: `make install prefix=DIR' may name another place than configure did. Folders
# below the prefix are told by it, so that `pkg-config --define-prefix' serves a tree that was moved.
pkgconfigdir = $(libdir)/pkgconfig
install-data-local:
	@$(MKDIR_P) '$(DESTDIR)$(pkgconfigdir)'
	sed -e 's,@version\@,$(PACKAGE_VERSION),' -e 's,@prefix\@,$(prefix),' -e 's,@libdir\@,$(libdir),' \
	  -e 's,@includedir\@,$(includedir),' -e 's,=$(prefix)/,=$${prefix}/,' \
	  $(srcdir)/bindings/c/aiacc.pc.in >'$(DESTDIR)$(pkgconfigdir)/aiacc.pc'
uninstall-local:
	rm -f '$(DESTDIR)$(pkgconfigdir)/aiacc.pc'
