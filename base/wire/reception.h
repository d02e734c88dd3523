// Reception: takes connections, and gives each newcomer the time to prove itself. Strangers cost little: a place among
// kMostGreetings for at most kHandshakeLimit, of which the oldest is given to a newcomer, and memory that does not depend on
// them.
#pragma once

#include <list>
#include <memory>
#include <optional>

#include "base/io/net.h"
#include "base/task/scope.h"
#include "base/wire/handshake.h"

namespace aiacc::wire {

class Reception final : private Root::Owner {
 public:
  static constexpr std::size_t kMostGreetings = 64;

  class Owner {
   public:
    // Speaks with a newcomer and keeps its stream if it is welcome. `stranger` says, at the end and also after an exception,
    // whether it was one as far as is known; it is true at first. A stop means that it was too slow, or dropped for others.
    virtual Task<void> greet(std::unique_ptr<io::Stream> stream, bool* stranger, Stop& stop) = 0;
    virtual void turned_away() noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // The owner outlives the reception.
  Reception(Loop& loop, Owner& owner, std::unique_ptr<io::Listener> listener);
  ~Reception();
  void open();
  // Nobody is greeted any more; who is being greeted hears of it from the loop.
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

  Loop& loop_;
  Owner& owner_;
  bool closed_ = false;
  Event left_;  // one who was greeted
  Stop stop_;
  std::unique_ptr<io::Listener> listener_;
  std::optional<Root> acceptor_;
  std::list<Greeting> greetings_;  // oldest first
};

}  // namespace aiacc::wire
