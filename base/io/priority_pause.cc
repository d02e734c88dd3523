#include "base/io/priority_pause.h"

#include <linux/dcbnl.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "base/fd.h"

namespace aiacc::io {
namespace {

using Bytes = std::span<const std::byte>;

void for_each_attribute(Bytes attributes, const std::function<void(unsigned type, Bytes value)>& see) {
  while (attributes.size() >= sizeof(rtattr)) {
    rtattr one;
    std::memcpy(&one, attributes.data(), sizeof one);
    if (one.rta_len < sizeof one || one.rta_len > attributes.size()) return;
    see(one.rta_type & ~static_cast<unsigned>(NLA_F_NESTED), attributes.subspan(sizeof one, one.rta_len - sizeof one));
    attributes = attributes.subspan(std::min<std::size_t>(RTA_ALIGN(one.rta_len), attributes.size()));
  }
}

void read_application(Bytes value, PriorityPause& into) {
  dcb_app one;
  if (value.size() < sizeof one) return;
  std::memcpy(&one, value.data(), sizeof one);
  if (one.selector == IEEE_8021QAZ_APP_SEL_DSCP && one.protocol < 64)
    into.priority_of_dscp[one.protocol] = one.priority;
}

void read_ieee(unsigned type, Bytes value, PriorityPause& into) {
  if (type == DCB_ATTR_IEEE_PFC) {
    ieee_pfc pfc;
    if (value.size() < sizeof pfc) return;
    std::memcpy(&pfc, value.data(), sizeof pfc);
    into.enabled = pfc.pfc_en;
  } else if (type == DCB_ATTR_IEEE_APP_TABLE) {
    for_each_attribute(value, [&](unsigned inner, Bytes bytes) {
      if (inner == DCB_ATTR_IEEE_APP) read_application(bytes, into);
    });
  }
}

std::vector<std::byte> ask_for_dcb(const std::string& device) {
  const Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  struct {
    nlmsghdr header;
    dcbmsg body;
    rtattr name;
    char text[IFNAMSIZ];
  } request = {};
  static_assert(offsetof(decltype(request), name) == NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(dcbmsg)));
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETDCB;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.cmd = DCB_CMD_IEEE_GET;
  request.name.rta_type = DCB_ATTR_IFNAME;
  request.name.rta_len = sizeof request.name + sizeof request.text;
  std::strncpy(request.text, device.c_str(), IFNAMSIZ - 1);
  // The answer comes with the call, but a kernel without DCB need not answer.
  timeval limit{};
  limit.tv_usec = 100'000;
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::vector<std::byte> answer(16 << 10);
  ssize_t got = -1;
  if (socket && ::send(socket.get(), &request, sizeof request, 0) == sizeof request) {
    got = ::recv(socket.get(), answer.data(), answer.size(), 0);
  }
  answer.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return answer;
}

bool ethtool(const std::string& device, void* what) {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, device.c_str(), IFNAMSIZ - 1);
  request.ifr_data = static_cast<char*>(what);
  return socket && ioctl(socket.get(), SIOCETHTOOL, &request) == 0;
}

std::map<std::string, std::uint64_t> pause_counters(const std::string& device) {
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  if (!ethtool(device, &driver) || driver.n_stats == 0) return {};
  // Structures of ethtool end in as many elements as their second number says; 64 bits are aligned as all of them want.
  const std::size_t count = driver.n_stats;
  // The kernel copies as many as there are by now, whatever it was asked for.
  constexpr std::size_t kMore = 4096;
  std::vector<std::uint64_t> names(2 + (count + kMore) * ETH_GSTRING_LEN / 8), values(1 + count + kMore);
  ethtool_gstrings strings{};
  strings.cmd = ETHTOOL_GSTRINGS;
  strings.string_set = ETH_SS_STATS;
  strings.len = driver.n_stats;
  std::memcpy(names.data(), &strings, sizeof strings);
  ethtool_stats stats{};
  stats.cmd = ETHTOOL_GSTATS;
  stats.n_stats = driver.n_stats;
  std::memcpy(values.data(), &stats, sizeof stats);
  if (!ethtool(device, names.data()) || !ethtool(device, values.data())) return {};
  const char* const text = reinterpret_cast<const char*>(names.data()) + sizeof strings;
  std::map<std::string, std::uint64_t> found;
  for (std::size_t i = 0; i < count; ++i) {
    const char* const first = text + i * ETH_GSTRING_LEN;
    const std::string name(first, strnlen(first, ETH_GSTRING_LEN));
    if (name.find("pause") != std::string::npos) found[name] = values[1 + i];
  }
  return found;
}

}  // namespace

PriorityPause read_dcb_answer(std::span<const std::byte> answer) {
  PriorityPause pause;
  nlmsghdr header;
  constexpr std::size_t kAttributes = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(dcbmsg));
  if (answer.size() < kAttributes) return pause;
  std::memcpy(&header, answer.data(), sizeof header);
  if (header.nlmsg_type != RTM_GETDCB || header.nlmsg_len < kAttributes) return pause;
  for_each_attribute(answer.first(std::min<std::size_t>(header.nlmsg_len, answer.size())).subspan(kAttributes),
                     [&](unsigned type, Bytes value) {
                       if (type != DCB_ATTR_IEEE) return;
                       for_each_attribute(value, [&](unsigned inner, Bytes bytes) { read_ieee(inner, bytes, pause); });
                     });
  return pause;
}

PriorityPause priority_pause(const std::string& device) {
  PriorityPause pause = read_dcb_answer(ask_for_dcb(device));
  pause.counters = pause_counters(device);
  return pause;
}

}  // namespace aiacc::io
