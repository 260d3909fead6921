// SPDX-License-Identifier: Apache-2.0
//
// Status and Result<T>: the one way in which Tidewire reports errors inside C++.
// A Status is OK, or a code with a text that names the thing, its value and the remedy. An OK Status is a null pointer, so that
// returning it costs nothing. Both are values: copying shares the immutable text; they may cross threads.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tidewire/tidewire.h"

namespace tidewire {

enum class Code : int {
  kOk = TW_OK,
  kInvalidArgument = TW_INVALID_ARGUMENT,
  kNotFound = TW_NOT_FOUND,
  kBusy = TW_BUSY,
  kNotRegistered = TW_NOT_REGISTERED,
  kOverlap = TW_OVERLAP,
  kPermissionDenied = TW_PERMISSION_DENIED,
  kUnreachable = TW_UNREACHABLE,
  kPeerGone = TW_PEER_GONE,
  kTimeout = TW_TIMEOUT,
  kCanceled = TW_CANCELED,
  kPartial = TW_PARTIAL,
  kNoMemory = TW_NO_MEMORY,
  kNoResources = TW_NO_RESOURCES,
  kAddressInUse = TW_ADDRESS_IN_USE,
  kUnsupported = TW_UNSUPPORTED,
  kUnauthenticated = TW_UNAUTHENTICATED,
  kProtocol = TW_PROTOCOL,
  kForked = TW_FORKED,
  kClosed = TW_CLOSED,
  kInternal = TW_INTERNAL,
};

// "TIMEOUT" for Code::kTimeout; "UNKNOWN" for numbers that are no code.
const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  // `system_error`: the errno behind it; 0 = none.
  Status(Code code, std::string message, int system_error = 0) {
    if (code != Code::kOk) error_ = std::make_shared<const Error>(Error{code, std::move(message), system_error});
  }

  // Status::error(Code::kTimeout, "peer {} did not answer in {} ms", name, ms)
  template <typename... Args>
  static Status error(Code code, fmt::format_string<Args...> format, Args&&... args) {
    return Status(code, fmt::format(format, std::forward<Args>(args)...));
  }

  bool ok() const { return error_ == nullptr; }
  Code code() const { return error_ ? error_->code : Code::kOk; }
  const std::string& message() const {
    static const std::string* const empty = new std::string;
    return error_ ? error_->message : *empty;
  }
  int system_error() const { return error_ ? error_->system_error : 0; }
  // The same code and error number with "context: " before the text.
  Status with_context(const std::string& context) const {
    return ok() ? *this : Status(code(), context + ": " + message(), system_error());
  }
  // "TIMEOUT: text", or "OK".
  std::string to_string() const { return ok() ? "OK" : fmt::format("{}: {}", code_name(code()), message()); }

 private:
  struct Error {
    Code code;
    std::string message;
    int system_error;
  };
  std::shared_ptr<const Error> error_;
};

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}        // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// The Status of an errno value: "connect to 10.0.0.1:80: Connection refused", with the code that fits it (ECONNREFUSED, EHOSTUNREACH…
// → kUnreachable, ECONNRESET, EPIPE → kPeerGone, ENOMEM → kNoMemory, EMFILE, ENFILE, ENOBUFS, EADDRNOTAVAIL, ENOSPC → kNoResources,
// EADDRINUSE → kAddressInUse, EPERM, EACCES → kPermissionDenied, ETIMEDOUT → kTimeout, otherwise kInternal).
Status errno_status(int error, const std::string& what);

}  // namespace tidewire

#define TIDEWIRE_CONCAT_INNER(a, b) a##b
#define TIDEWIRE_CONCAT(a, b) TIDEWIRE_CONCAT_INNER(a, b)
// Leaves the calling function with the Status when it is not OK.
#define TW_RETURN_IF_ERROR(expression)                          \
  do {                                                          \
    ::tidewire::Status tw_status_ = (expression);               \
    if (!tw_status_.ok()) return tw_status_;                    \
  } while (false)
// TW_ASSIGN_OR_RETURN(auto value, function());
#define TW_ASSIGN_OR_RETURN(declaration, expression) \
  TW_ASSIGN_OR_RETURN_INNER(TIDEWIRE_CONCAT(tw_result_, __LINE__), declaration, expression)
#define TW_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                      \
  if (!result.ok()) return result.status();                        \
  declaration = std::move(result).value()
