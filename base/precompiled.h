// The headers that nearly every source of the library includes, compiled once (Makefile.am, pch/). A change of any of
// these recompiles everything, so only headers that seldom change belong here. Sources include what they need
// themselves.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/task/loop.h"
#include "base/task/scope.h"
#include "base/task/stop.h"
#include "base/task/task.h"
