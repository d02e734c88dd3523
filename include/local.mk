# include: the installed headers, in $(includedir)/aiacc.
pkginclude_HEADERS += include/aiacc/aiacc.h include/aiacc/aiacc.hpp
