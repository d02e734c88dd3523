// Statuses, the last error of a thread, and checks that the header's values equal the internal ones.
#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "base/data/dtype.h"
#include "base/error_about.h"
#include "base/printable.h"
#include "bindings/c/guard.h"

namespace aiacc::abi {
namespace {

struct LastError {
  std::string sentence;
  int rank = -1;
  std::vector<int> ranks;
};
thread_local LastError last_error;

static_assert(AIACC_OK == static_cast<int>(Code::kOk));
static_assert(AIACC_ERR_INVALID_ARGUMENT == static_cast<int>(Code::kInvalidArgument));
static_assert(AIACC_ERR_INVALID_HANDLE == static_cast<int>(Code::kInvalidHandle));
static_assert(AIACC_ERR_INVALID_STATE == static_cast<int>(Code::kInvalidState));
static_assert(AIACC_ERR_UNSUPPORTED == static_cast<int>(Code::kUnsupported));
static_assert(AIACC_ERR_OUT_OF_MEMORY == static_cast<int>(Code::kOutOfMemory));
static_assert(AIACC_ERR_SYSTEM == static_cast<int>(Code::kSystem));
static_assert(AIACC_ERR_TIMEOUT == static_cast<int>(Code::kTimeout));
static_assert(AIACC_ERR_PEER_FAILED == static_cast<int>(Code::kPeerFailed));
static_assert(AIACC_ERR_MISMATCH == static_cast<int>(Code::kMismatch));
static_assert(AIACC_ERR_ABORTED == static_cast<int>(Code::kAborted));
static_assert(AIACC_ERR_PROTOCOL == static_cast<int>(Code::kProtocol));
static_assert(AIACC_PENDING == static_cast<int>(Code::kPending));
static_assert(AIACC_ERR_INTERNAL == static_cast<int>(Code::kInternal));
static_assert(AIACC_ERR_UNREACHABLE == static_cast<int>(Code::kUnreachable));
static_assert(AIACC_ERR_NOT_FINITE == static_cast<int>(Code::kNotFinite));

static_assert(AIACC_INT8 == static_cast<int>(DType::kInt8));
static_assert(AIACC_UINT8 == static_cast<int>(DType::kUInt8));
static_assert(AIACC_INT16 == static_cast<int>(DType::kInt16));
static_assert(AIACC_UINT16 == static_cast<int>(DType::kUInt16));
static_assert(AIACC_INT32 == static_cast<int>(DType::kInt32));
static_assert(AIACC_UINT32 == static_cast<int>(DType::kUInt32));
static_assert(AIACC_INT64 == static_cast<int>(DType::kInt64));
static_assert(AIACC_UINT64 == static_cast<int>(DType::kUInt64));
static_assert(AIACC_FLOAT16 == static_cast<int>(DType::kFloat16));
static_assert(AIACC_BFLOAT16 == static_cast<int>(DType::kBFloat16));
static_assert(AIACC_FLOAT32 == static_cast<int>(DType::kFloat32));
static_assert(AIACC_FLOAT64 == static_cast<int>(DType::kFloat64));
static_assert(AIACC_BOOL == static_cast<int>(DType::kBool) && kDTypes == AIACC_BOOL + 1 &&
              AIACC_RECORD == static_cast<int>(DType::kRecord));

static_assert(AIACC_SUM == static_cast<int>(ReduceOp::kSum));
static_assert(AIACC_AVG == static_cast<int>(ReduceOp::kAvg));
static_assert(AIACC_PROD == static_cast<int>(ReduceOp::kProd));
static_assert(AIACC_MIN == static_cast<int>(ReduceOp::kMin));
static_assert(AIACC_MAX == static_cast<int>(ReduceOp::kMax));
static_assert(AIACC_BAND == static_cast<int>(ReduceOp::kBitAnd));
static_assert(AIACC_BOR == static_cast<int>(ReduceOp::kBitOr));
static_assert(AIACC_BXOR == static_cast<int>(ReduceOp::kBitXor) && kReduceOps == AIACC_BXOR + 1);

}  // namespace

aiacc_status_t remember(const Error& error) noexcept {
  try {
    last_error.ranks.assign(error.peer() < 0 ? 0 : 1, error.peer());
    last_error.sentence = printable(error.message());  // it may contain text from peers
  } catch (...) {
    last_error.sentence.clear();  // no memory for the sentence; the caller still gets the status
  }
  last_error.rank = error.peer();
  return static_cast<aiacc_status_t>(error.code());
}

aiacc_status_t remember(const std::exception_ptr& error) noexcept {
  const aiacc_status_t status = remember(as_error(error));
  try {
    last_error.ranks = ranks_of(error);
  } catch (const std::bad_alloc&) {
  }
  return status;
}

}  // namespace aiacc::abi

using namespace aiacc::abi;

extern "C" {

const char* aiacc_last_error(void) { return last_error.sentence.c_str(); }

int aiacc_last_error_rank(void) { return last_error.rank; }

aiacc_status_t aiacc_last_error_ranks(int* ranks, size_t capacity, size_t* count) {
  // Refused without changing the thread's last error, which the caller asks about.
  if (count == nullptr || (ranks == nullptr && capacity > 0)) return AIACC_ERR_INVALID_ARGUMENT;
  *count = last_error.ranks.size();
  std::copy_n(last_error.ranks.begin(), std::min(capacity, last_error.ranks.size()), ranks);
  return AIACC_OK;
}

// code_name() returns a literal, so it ends with a zero.
const char* aiacc_status_name(aiacc_status_t status) {
  return aiacc::code_name(static_cast<aiacc::Code>(status)).data();
}

#define AIACC_TEXT_OF(number) #number
#define AIACC_VERSION_TEXT(major, minor, patch) AIACC_TEXT_OF(major) "." AIACC_TEXT_OF(minor) "." AIACC_TEXT_OF(patch)
const char* aiacc_version(void) {
  return AIACC_VERSION_TEXT(AIACC_VERSION_MAJOR, AIACC_VERSION_MINOR, AIACC_VERSION_PATCH);
}

size_t aiacc_dtype_size(aiacc_dtype_t dtype) { return aiacc::size_of(static_cast<aiacc::DType>(dtype)); }

}  // extern "C"
