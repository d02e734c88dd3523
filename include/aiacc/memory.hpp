// Shared and registered memory for collectives. Part of aiacc.hpp.
#ifndef AIACC_MEMORY_HPP
#define AIACC_MEMORY_HPP

#include <aiacc/aiacc.h>
#include <aiacc/error.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace aiacc {
inline namespace v0 {

// An array in memory that is shared by the ranks of this host: collectives on it move the fewest bytes. Its elements
// are not initialised.
template <class T>
requires std::is_trivially_copyable_v<T>
class Memory {
 public:
  explicit Memory(std::size_t count, aiacc_context_t context = AIACC_NULL) : count_(count) {
    void *memory = nullptr;
    check(aiacc_mem_alloc(context, count * sizeof(T), &memory));
    data_.reset(static_cast<T *>(memory));
  }

  T *data() noexcept { return data_.get(); }
  const T *data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return count_; }
  T *begin() noexcept { return data(); }
  T *end() noexcept { return data() + count_; }
  const T *begin() const noexcept { return data(); }
  const T *end() const noexcept { return data() + count_; }
  T &operator[](std::size_t i) noexcept { return data()[i]; }
  const T &operator[](std::size_t i) const noexcept { return data()[i]; }

 private:
  struct Free {
    void operator()(T *memory) const noexcept { aiacc_mem_free(memory); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t count_;
};

// The caller's own memory, registered while this object exists or until its context ends; see aiacc_mem_register.
class Registration {
 public:
  template <class T, std::size_t N>
  explicit Registration(std::span<T, N> memory, aiacc_context_t context = AIACC_NULL) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "operations write plain data there");
    check(aiacc_mem_register(context, memory.data(), memory.size_bytes(), &handle_));
  }
  Registration(Registration &&other) noexcept : handle_(std::exchange(other.handle_, AIACC_NULL)) {}
  Registration &operator=(Registration &&other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Registration() {
    if (handle_ != AIACC_NULL) aiacc_mem_deregister(handle_);
  }

 private:
  aiacc_registration_t handle_ = AIACC_NULL;
};

}  // namespace v0
}  // namespace aiacc

#endif
