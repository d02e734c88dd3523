# tools: aiacc-info, aiacc-perf, aiacc-tune, aiacc-sim; all but aiacc-sim use aiacc.h as any user does. Of base they take what
# programs have in common: options, JSON, sentences. aiacc-info and
# aiacc-tune take the list of algorithms of collectives, too.
bin_PROGRAMS += aiacc-info
aiacc_info_SOURCES = \
	tools/info/algorithms.cc \
	tools/info/algorithms.h \
	tools/info/main.cc \
	tools/info/options.cc \
	tools/info/options.h \
	tools/info/text.cc \
	tools/info/text.h
aiacc_info_CXXFLAGS = $(program_flags)
aiacc_info_LDADD = libaiacc.la libaiacc_options.la $(floors_up_to_runtime)
aiacc_info_LDFLAGS = $(relocatable)

bin_PROGRAMS += aiacc-perf
aiacc_perf_SOURCES = \
	tools/perf/classes.cc \
	tools/perf/classes.h \
	tools/perf/collectives.cc \
	tools/perf/collectives.h \
	tools/perf/data.cc \
	tools/perf/data.h \
	tools/perf/main.cc \
	tools/perf/measure.cc \
	tools/perf/measure.h \
	tools/perf/memory.cc \
	tools/perf/memory.h \
	tools/perf/options.cc \
	tools/perf/options.h \
	tools/perf/output.cc \
	tools/perf/output.h \
	tools/perf/plot.cc \
	tools/perf/plot.h \
	tools/perf/types.cc \
	tools/perf/types.h \
	tools/perf/user_op.cc \
	tools/perf/user_op.h \
	tools/perf/world.cc \
	tools/perf/world.h
aiacc_perf_CXXFLAGS = $(program_flags)
aiacc_perf_LDADD = libaiacc.la libaiacc_options.la $(floors_up_to_base)
aiacc_perf_LDFLAGS = $(relocatable)

bin_PROGRAMS += aiacc-tune
aiacc_tune_SOURCES = \
	tools/perf/collectives.cc \
	tools/perf/memory.cc \
	tools/perf/world.cc \
	tools/tune/main.cc \
	tools/tune/measure.cc \
	tools/tune/measure.h \
	tools/tune/options.cc \
	tools/tune/options.h
aiacc_tune_CXXFLAGS = $(program_flags)
aiacc_tune_LDADD = libaiacc.la libaiacc_options.la $(floors_up_to_collectives)
aiacc_tune_LDFLAGS = $(relocatable)
