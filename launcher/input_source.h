// InputSource: aiaccrun's standard input on its way to the agent of the rank that reads it. Nothing is read without credit of
// that agent, which has some when the rank runs and gives back what the rank's pipe has taken: what a rank does not read
// stays where it is, but for a window.
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
    // Empty, and the last: the end.
    virtual void input_read(std::string bytes) = 0;
    // It cannot be read (any more); its end was told.
    virtual void input_failed(const Error& error) = 0;

   protected:
    ~Owner() = default;
  };

  // `from` may be a terminal that belongs to another job meanwhile: it is read when this one is in the foreground.
  InputSource(Loop& loop, io::Stream& from, Owner& owner) : loop_(loop), from_(from), owner_(owner), changed_(loop) {}
  InputSource(const InputSource&) = delete;
  InputSource& operator=(const InputSource&) = delete;

  void add_credit(std::uint64_t bytes) noexcept {
    credit_ += bytes;
    changed_.set();
  }
  // The rank reads no more.
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
  Stop* reading_ = nullptr;  // while run() does
  bool closed_ = false;
};

}  // namespace aiacc::launcher
