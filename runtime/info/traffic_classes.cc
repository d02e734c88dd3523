#include "runtime/info/traffic_classes.h"

#include <fmt/format.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fd.h"
#include "transports/qos/class_shares.h"
#include "transports/qos/latency_use.h"

namespace aiacc::info {
namespace {

struct ClassRow {
  const char* name;
  const char* setting;
  std::string ConfigValues::*text;
};
constexpr std::array<ClassRow, kTrafficClasses> kRows = {{{"control", "AIACC_TC_CTRL", &ConfigValues::tc_ctrl},
                                                          {"latency", "AIACC_TC_LAT", &ConfigValues::tc_lat},
                                                          {"bulk", "AIACC_TC_BULK", &ConfigValues::tc_bulk},
                                                          {"background", "AIACC_TC_BG", &ConfigValues::tc_bg}}};
constexpr auto kBulk = static_cast<std::size_t>(TrafficClass::kBulk);

// As transports/tcp/link.cc does: a class that is marked as bulk is takes its connections, others one of their own, which equals share.
std::string connection_of(const std::vector<ClassReport>& classes, std::size_t traffic) {
  if (classes[traffic].marks.same_flow(classes[kBulk].marks)) return classes[kBulk].name;
  const auto last = std::find_if(classes.rbegin(), classes.rend(), [&](const ClassReport& other) {
    return other.marks.same_flow(classes[traffic].marks);
  });
  return last->name;
}

std::vector<std::byte> dump_disciplines() {
  const Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  struct {
    nlmsghdr header;
    tcmsg body;
  } request = {};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETQDISC;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  std::vector<std::byte> all;
  if (!socket || ::send(socket.get(), &request, sizeof request, 0) != sizeof request) return all;
  std::vector<std::byte> some(64 << 10);
  for (;;) {
    const ssize_t got = ::recv(socket.get(), some.data(), some.size(), 0);
    if (got < static_cast<ssize_t>(sizeof(nlmsghdr))) return all;
    nlmsghdr first;
    std::memcpy(&first, some.data(), sizeof first);
    if (first.nlmsg_type == NLMSG_DONE || first.nlmsg_type == NLMSG_ERROR) return all;
    all.insert(all.end(), some.begin(), some.begin() + got);
  }
}

std::string text_attribute(std::span<const std::byte> attributes, unsigned short type) {
  while (attributes.size() >= sizeof(rtattr)) {
    rtattr one;
    std::memcpy(&one, attributes.data(), sizeof one);
    if (one.rta_len < sizeof one || one.rta_len > attributes.size()) break;
    const auto value = attributes.subspan(sizeof one, one.rta_len - sizeof one);
    if (one.rta_type == type) {
      const auto* const text = reinterpret_cast<const char*>(value.data());
      return std::string(text, strnlen(text, value.size()));
    }
    attributes = attributes.subspan(std::min<std::size_t>(RTA_ALIGN(one.rta_len), attributes.size()));
  }
  return {};
}

}  // namespace

std::string try_on_a_socket(const io::TrafficMarks& marks) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket ? io::mark_traffic(socket.get(), marks) : std::string();
}

std::vector<ClassReport> traffic_classes(const ConfigValues& values, std::span<const std::string> devices,
                                         const TryMarks& try_marks) {
  std::vector<ClassReport> classes;
  for (const ClassRow& row : kRows) {
    ClassReport& one = classes.emplace_back(ClassReport{row.name, row.setting, {}, {}, {}});
    try {
      one.marks = io::TrafficMarks::parse(row.setting, values.*row.text);
      one.refused = try_marks(one.marks);
      one.lossless = lossless_on(one.marks, devices);
    } catch (const Error& error) {
      one.refused = error.message();
    }
  }
  for (std::size_t traffic = 0; traffic < classes.size(); ++traffic) {
    classes[traffic].connection = connection_of(classes, traffic);
  }
  return classes;
}

std::vector<QueueingDiscipline> read_disciplines(std::span<const std::byte> dump,
                                                 const std::function<std::string(unsigned)>& name_of_device) {
  std::vector<QueueingDiscipline> found;
  while (dump.size() >= sizeof(nlmsghdr)) {
    nlmsghdr header;
    std::memcpy(&header, dump.data(), sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > dump.size()) break;
    const auto message = dump.first(header.nlmsg_len);
    dump = dump.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), dump.size()));
    constexpr std::size_t kBody = NLMSG_HDRLEN, kAttributes = kBody + NLMSG_ALIGN(sizeof(tcmsg));
    if (header.nlmsg_type != RTM_NEWQDISC || message.size() < kAttributes) continue;
    tcmsg body;
    std::memcpy(&body, message.data() + kBody, sizeof body);
    if (body.tcm_parent != TC_H_ROOT) continue;
    found.push_back({name_of_device(static_cast<unsigned>(body.tcm_ifindex)),
                     text_attribute(message.subspan(kAttributes), TCA_KIND)});
  }
  return found;
}

std::vector<QueueingDiscipline> queueing_disciplines() {
  return read_disciplines(dump_disciplines(), [](unsigned index) {
    char name[IF_NAMESIZE] = {};
    return std::string(if_indextoname(index, name) != nullptr ? name : fmt::format("device {}", index));
  });
}

Json to_json(const std::vector<ClassReport>& classes, const std::vector<QueueingDiscipline>& disciplines) {
  const auto or_null = [](const auto& value) { return value ? Json(static_cast<std::int64_t>(*value)) : Json(); };
  const auto lossless_devices = [](const ClassReport& one) {
    Json::Array all;
    for (const LosslessDevice& each : one.lossless) {
      all.push_back(Json::Object{{"device", each.device},
                                 {"priority", each.priority ? Json(*each.priority) : Json()},
                                 {"pfc", each.priority ? Json(each.on) : Json()}});
    }
    return all;
  };
  Json::Array list, devices;
  for (std::size_t traffic = 0; traffic < classes.size(); ++traffic) {
    const ClassReport& one = classes[traffic];
    const auto share = static_cast<std::int64_t>(ClassShares::kDefault[traffic]);
    const auto home = std::find_if(classes.begin(), classes.end(),
                                   [&one](const ClassReport& other) { return other.name == one.connection; });
    const bool yields = traffic >= kBulk && !(home == classes.end() ? one : *home).marks.delay;
    list.push_back(
        Json::Object{{"name", one.name},
                     {"setting", one.setting},
                     {"dscp", or_null(one.marks.dscp)},
                     {"priority", or_null(one.marks.priority)},
                     {"share", traffic == 0 ? Json() : Json(one.marks.share.value_or(static_cast<int>(share)))},
                     {"rate_bits", or_null(one.marks.rate)},
                     {"delay_us", one.marks.limits_delay() ? Json(seconds(*one.marks.delay) * 1e6) : Json()},
                     {"delay_beside_latency_us", yields ? Json(seconds(LatencyUse::kDelay) * 1e6) : Json()},
                     {"lossless", one.marks.is_lossless()},
                     {"lossless_devices", lossless_devices(one)},
                     {"connection", one.connection},
                     {"refused", one.refused}});
  }
  for (const QueueingDiscipline& one : disciplines) {
    devices.push_back(Json::Object{{"device", one.device}, {"discipline", one.kind}});
  }
  return Json::Object{{"classes", std::move(list)}, {"devices", std::move(devices)}};
}

Findings judge(const std::vector<ClassReport>& classes) {
  Findings findings;
  for (const ClassReport& one : classes) {
    for (Finding& each : judge(one.setting, one.marks, one.lossless)) findings.push_back(std::move(each));
    if (one.refused.empty()) continue;
    const bool privileged = one.marks.priority.value_or(0) > io::TrafficMarks::kMostOrdinaryPriority;
    findings.push_back(
        {Finding::Level::kHurts, one.setting,
         one.refused + (privileged ? "; a priority above 6 needs CAP_NET_ADMIN" : ""),
         privileged ? "give priority=0 to 6, or run the job with CAP_NET_ADMIN" : "leave out what the host refuses"});
  }
  return findings;
}

}  // namespace aiacc::info
