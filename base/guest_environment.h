// GuestEnvironment: what a library that reads its settings from the environment sees in place of the user's. While an
// object lives, `environ` is another list. Who reads the environment in another thread meanwhile finds one of the two, and
// both stay valid; who changes it meanwhile may lose that change.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace aiacc {

class GuestEnvironment {
 public:
  // The user's environment without the variables whose names begin with `without` and without those of `settings`, and with
  // `settings` ("NAME=text"; of the same name the last counts; "NAME" alone leaves the variable out).
  GuestEnvironment(std::string_view without, std::span<const std::string> settings);
  GuestEnvironment(const GuestEnvironment&) = delete;
  GuestEnvironment& operator=(const GuestEnvironment&) = delete;
  ~GuestEnvironment();

 private:
  char** users_;
  char** mine_;
};

// The same for files that it reads in the working directory: `work` runs in a thread that has another one, where that is permitted.
void outside_of_working_directory(const std::function<void()>& work);

}  // namespace aiacc
