# tools: aiacc-info, aiacc-perf, aiacc-sim; all but aiacc-sim use aiacc.h as any user does. Of base they take what programs
# have in common: options, JSON, sentences.
bin_PROGRAMS += aiacc-info
aiacc_info_SOURCES = \
	tools/info/main.cc \
	tools/info/options.cc \
	tools/info/options.h \
	tools/info/text.cc \
	tools/info/text.h
aiacc_info_LDADD = libaiacc.la libaiacc_options.la $(floors_up_to_base)
aiacc_info_LDFLAGS = $(relocatable)
