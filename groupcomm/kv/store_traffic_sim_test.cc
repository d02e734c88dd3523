// The messages of a store between hosts are in its traffic class, those of its replicas too.
#include <set>

#include "groupcomm/kv/store_world_test.h"
#include "transports/forwarding_port_test.h"

namespace aiacc::sim {
namespace {

// A port that notes the classes of service messages.
class ClassNotingPort final : public ForwardingPort {
 public:
  ClassNotingPort(std::unique_ptr<MessagePort> port, std::set<TrafficClass>& noted)
      : ForwardingPort(std::move(port)), noted_(noted) {}
  void post(int to, const MessageHeader& header, std::span<const Buffer> pieces,
            SendCompletion& completion) noexcept override {
    if (header.kind == MessageKind::kService) noted_.insert(header.traffic);
    ForwardingPort::post(to, header, pieces, completion);
  }

 private:
  std::set<TrafficClass>& noted_;
};

TEST(SimStoreTraffic, AStoreHasOneClass) {
  for (const int replicas : {1, 2}) {
    for (const TrafficClass traffic : {TrafficClass::kBulk, TrafficClass::kBackground, TrafficClass::kLatency}) {
      std::set<TrafficClass> noted;
      StoreOptions options;
      options.traffic = traffic;
      options.replicas = replicas;
      const Values value(3000, 1.0f);
      Values out(value.size());
      StoreJob world({0, 1}, options, 1, [&](std::unique_ptr<MessagePort> port) -> std::unique_ptr<MessagePort> {
        return std::make_unique<ClassNotingPort>(std::move(port), noted);
      });
      world.init_all("skey", value);
      for (int rank = 0; rank < 2; ++rank) world.start(rank, StoreJob::pushpull("skey", value, out));
      ASSERT_TRUE(world.finish());
      EXPECT_EQ(noted, std::set<TrafficClass>{traffic});
    }
  }
}

}  // namespace
}  // namespace aiacc::sim
