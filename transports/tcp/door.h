// Door: takes connections, and lets in who proves to be a rank of this job. Strangers cost little: a place among kMostGreetings
// for at most wire::kHandshakeLimit, of which the oldest is given to a newcomer, and memory that does not depend on them.
#pragma once

#include <list>
#include <memory>
#include <optional>

#include "base/task/scope.h"
#include "base/wire/handshake.h"
#include "transports/tcp/dial.h"
#include "transports/tcp/shared.h"

namespace aiacc::tcp {

class DoorOwner {
 public:
  virtual wire::Verdict judge(int rank, const Terms& theirs) noexcept = 0;
  virtual Terms terms_for(int rank) noexcept = 0;
  virtual void let_in(int rank, std::unique_ptr<io::Stream> stream, const Terms& theirs, wire::Bytes preface) = 0;

 protected:
  ~DoorOwner() = default;
};

class Door final : private Root::Owner {
 public:
  static constexpr std::size_t kMostGreetings = 64;

  Door(Shared& shared, DoorOwner& owner, std::unique_ptr<io::Listener> listener);
  ~Door();
  void open();
  void close() noexcept;

 private:
  struct Greeting {
    Stop stop;
    std::optional<Root> root;
  };

  void root_ended(Root& root, std::exception_ptr error) noexcept override;
  Task<void> accept_all();
  void admit(std::unique_ptr<io::Stream> stream);
  Task<void> greet(Greeting* self, std::unique_ptr<io::Stream> stream);
  Task<void> converse(Greeting* self, std::unique_ptr<io::Stream> stream, bool* stranger);

  Shared& shared_;
  DoorOwner& owner_;
  Event left_;  // one who was greeted
  Stop stop_;
  std::unique_ptr<io::Listener> listener_;
  std::optional<Root> acceptor_;
  std::list<Greeting> greetings_;  // oldest first
};

}  // namespace aiacc::tcp
