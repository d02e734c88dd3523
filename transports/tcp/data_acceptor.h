// DataAcceptor: accepts data connections from ranks that prove that they belong to this job (base/wire/acceptor.h).
#pragma once

#include <memory>

#include "base/wire/acceptor.h"
#include "transports/tcp/dial.h"
#include "transports/tcp/shared.h"

namespace aiacc::tcp {

class DataAcceptorOwner {
 public:
  virtual wire::Verdict judge(int rank, const Terms& theirs) noexcept = 0;
  virtual Terms terms_for(int rank, std::size_t stream) noexcept = 0;
  virtual void mark(int rank, const Terms& theirs, const io::Stream& stream) noexcept = 0;
  virtual void let_in(int rank, std::unique_ptr<io::Stream> stream, const Terms& theirs, wire::Bytes preface) = 0;
  // The rank belongs to this job, but this pair can never communicate (`why`).
  virtual void turn_away(int rank, const Error& why) noexcept = 0;

 protected:
  ~DataAcceptorOwner() = default;
};

class DataAcceptor final : private wire::Acceptor::Owner {
 public:
  DataAcceptor(Shared& shared, DataAcceptorOwner& owner, std::unique_ptr<io::Listener> listener);
  void open() { acceptor_.open(); }
  void close() noexcept { acceptor_.close(); }

 private:
  Task<void> greet(std::unique_ptr<io::Stream> stream, wire::Acceptor::Newcomer& newcomer, Stop& stop) override;
  void peer_refused() noexcept override {
    if (!shared_.closed) ++shared_.refused;
  }

  Shared& shared_;
  DataAcceptorOwner& owner_;
  wire::Acceptor acceptor_;
};

}  // namespace aiacc::tcp
