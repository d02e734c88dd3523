// Acceptor: accepts connections and gives each peer a limited time to authenticate. Unauthenticated peers cost little:
// one of kMostGreetings slots for at most kHandshakeLimit, and bounded memory. When all slots are taken, a new
// connection replaces one from the source address that has the most: one that has sent no hello if there is any, and of
// these the oldest. A flood therefore displaces its own connections, and a slow member of the job keeps its slot. Addresses that the
// job's list of hosts names come last, as long as they have kReserved slots or fewer: a flood from any number of other
// addresses displaces none of these.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "base/io/net.h"
#include "base/task/scope.h"
#include "base/wire/handshake.h"

namespace aiacc::wire {

class Acceptor final : private Root::Owner {
 public:
  static constexpr std::size_t kMostGreetings = 64;
  static constexpr std::size_t kReserved =
      8;  // of an address of the job; a host's ranks dial again where one was dropped

  struct Newcomer {
    // Whether the peer was unauthenticated, as far as is known; read at the end, also after an exception.
    bool unauthenticated = true;
    HandshakeProgress heard;  // how far its handshake came; set by the owner
  };
  class Owner {
   public:
    // Runs the handshake with a new peer and keeps the stream if the peer is accepted. A stop means that it was too
    // slow, or was dropped to make room.
    virtual Task<void> greet(std::unique_ptr<io::Stream> stream, Newcomer& newcomer, Stop& stop) = 0;
    virtual void peer_refused() noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // The owner must outlive the acceptor.
  Acceptor(Loop& loop, Owner& owner, std::unique_ptr<io::Listener> listener);
  ~Acceptor();
  // Addresses of the job's hosts, numeric; before open().
  void reserve_for(std::span<const std::string> addresses);
  void open();
  // Accepts no more connections; handshakes in progress are stopped from the loop.
  void close() noexcept;

 private:
  struct Greeting {
    std::string source;
    bool of_job = false;  // the source is an address of the job
    Newcomer newcomer;
    bool leaves = false;  // its slot was given to another connection
    Stop stop;
    std::optional<Root> root;
  };

  void root_ended(Root& root, std::exception_ptr error) noexcept override;
  Task<void> accept_all();
  void admit(std::unique_ptr<io::Stream> stream);
  void make_place();
  Task<void> greet(Greeting* self, std::unique_ptr<io::Stream> stream);

  Loop& loop_;
  Owner& owner_;
  bool closed_ = false;
  Event left_;  // set when a handshake has ended
  Stop stop_;
  std::unique_ptr<io::Listener> listener_;
  std::optional<Root> accept_loop_;
  std::set<std::string> addresses_of_job_;
  std::list<Greeting> greetings_;  // oldest first
};

}  // namespace aiacc::wire
