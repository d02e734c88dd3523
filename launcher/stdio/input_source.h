// InputSource: aiaccrun's standard input on its way to the agent of the rank that reads it. It reads only with credit
// from that agent, which grants a window when the rank runs and returns credit for what the rank's pipe has accepted.
// So at most one window of unread input leaves the source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/io/net.h"

namespace aiacc::launcher {

class InputSource {
 public:
  class Owner {
   public:
    // The last call has no bytes: the end.
    virtual void input_read(std::string bytes) = 0;
    // It cannot be read (any more); input_read() has reported its end.
    virtual void input_failed(const Error& error) = 0;

   protected:
    ~Owner() = default;
  };

  // If `from` is a terminal, it is read only while this job is in its foreground.
  InputSource(Loop& loop, io::Stream& from, Owner& owner) : loop_(loop), from_(from), owner_(owner), changed_(loop) {}
  InputSource(const InputSource&) = delete;
  InputSource& operator=(const InputSource&) = delete;

  void add_credit(std::uint64_t bytes) noexcept {
    credit_ += bytes;
    changed_.set();
  }
  // The rank does not read any more.
  void close() noexcept;

  // Reads until the end, or until closed.
  Task<void> run(Stop& stop);

 private:
  Task<void> read(Stop& stop);

  Loop& loop_;
  io::Stream& from_;
  Owner& owner_;
  Event changed_;
  std::uint64_t credit_ = 0;
  Stop* reading_ = nullptr;  // set while run() reads
  bool closed_ = false;
};

}  // namespace aiacc::launcher
