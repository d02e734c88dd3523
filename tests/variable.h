// Sets an environment variable of this process while the object exists. No other thread may read the environment
// meanwhile.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace aiacc::test {

class Variable {
 public:
  // Null: unsets it.
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;  // NOLINT(concurrency-mt-unsafe)
    put(value);
  }
  ~Variable() { put(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void put(const char* value) const noexcept {
    if (value == nullptr) {
      unsetenv(name_);  // NOLINT(concurrency-mt-unsafe)
    } else {
      setenv(name_, value, 1);  // NOLINT(concurrency-mt-unsafe)
    }
  }

  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace aiacc::test
