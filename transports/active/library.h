// Library: what the loader, addresses and sentences need to know of the library behind a module.
#pragma once

#include <span>
#include <string_view>

namespace aiacc::active {

struct Library {
  std::string_view transport;  // as AIACC_TRANSPORT names it: "ucx"
  std::string_view name;       // in sentences: "UCX"
  const char* module;          // "aiacc-ucx.so"
  const char* entry;           // the module's only symbol
  std::string_view prefix;     // of the variables in which the library finds its settings: "UCX_"
  // Settings that it finds where the user has set none: "NAME=text"; "NAME" alone hides that variable from it.
  std::span<const std::string_view> defaults;
  // A setting that open() is told, because the library cannot be asked for it or, as that of the networks to take, has none such; and
  // what open() is told where the user has not set it. "" where it has no need of that.
  std::string_view choice = "";
  const char* standard_choice = "";
  // Messages of the classes control and latency have a worker of their own, so that they do not wait behind long ones.
  bool separates_bulk = false;
  // Where the worker's description has this, what is sent of a class to a peer comes in its order, as long as nothing is lost with a
  // connection, of which the library may not tell; and all classes have one worker. "": nowhere.
  std::string_view ordered_over = "";
  // Settings that mark what a worker sends: the octet of the traffic class (the DSCP and two bits), and the service level. "": none.
  std::string_view traffic_class = "";
  std::string_view service_level = "";
};

}  // namespace aiacc::active
