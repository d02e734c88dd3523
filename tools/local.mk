# tools: aiacc-info, aiacc-perf, aiacc-sim; all but aiacc-sim use aiacc.h as any user does.
