# man: the manual pages, in mdoc.
dist_man_MANS += \
	man/aiacc-env.7 \
	man/aiacc-protocol.7 \
	man/aiacc-info.1 \
	man/aiacc-perf.1 \
	man/aiacc-tune.1 \
	man/aiacc.7 \
	man/aiacc.hpp.3 \
	man/aiacc_allreduce.3 \
	man/aiacc_alltoall.3 \
	man/aiacc_context_create_local.3 \
	man/aiacc_info.3 \
	man/aiacc_kv_create.3 \
	man/aiacc_gradient_create.3 \
	man/aiacc_metrics.3 \
	man/aiacc_softmax_loss.3 \
	man/aiacc_syncbn_create.3 \
	man/aiacc_group_create.3 \
	man/aiacc_init.3 \
	man/aiacc_last_error.3 \
	man/aiacc_mem_alloc.3 \
	man/aiacc_op_create.3 \
	man/aiacc_mesh_create.3 \
	man/aiacc_rank.3 \
	man/aiacc_send.3 \
	man/aiacc_timeline_start.3 \
	man/aiacc_wait.3 \
	man/aiaccrun.1

# A page of several functions is found under the name of each: pages that refer to it, made from its NAME section.
list_names = sed -n 's/^\.Nm \([a-z_]*\) *,*$$/\1/p'
install-data-hook:
	for page in $(srcdir)/man/*.3; do \
	  for name in `$(list_names) $$page | sort -u`; do \
	    test $$name.3 = `basename $$page` || \
	      echo ".so man3/`basename $$page`" > "$(DESTDIR)$(man3dir)/$$name.3"; \
	  done; \
	done
uninstall-hook:
	for page in $(srcdir)/man/*.3; do \
	  for name in `$(list_names) $$page | sort -u`; do rm -f "$(DESTDIR)$(man3dir)/$$name.3"; done; \
	done
