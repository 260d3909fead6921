// SPDX-License-Identifier: Apache-2.0
#include "metadata/http_response.h"

#include <algorithm>
#include <charconv>

namespace tidewire::metadata {
namespace {

constexpr size_t kMaxHeaderBytes = 16u << 10;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trimmed(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(" \t") - start + 1);
}

bool parse_number(std::string_view text, int base, uint64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Status HttpResponse::fail(std::string_view why) {
  return Status::error(Code::kProtocol, "no valid HTTP response: {}", why);
}

Status HttpResponse::feed(std::string_view bytes) {
  while (!bytes.empty() && state_ != State::kComplete) {
    if (state_ == State::kBody || state_ == State::kUntilEnd || state_ == State::kChunk) {
      TW_RETURN_IF_ERROR(take_body(&bytes));
      continue;
    }
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    header_bytes_ += part.size() + 1;
    if (header_bytes_ > kMaxHeaderBytes) return fail("its headers are too long");
    line_ += part;
    if (end == std::string_view::npos) return Status();
    bytes.remove_prefix(end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    const std::string line = std::move(line_);
    line_.clear();
    TW_RETURN_IF_ERROR(on_line(line));
  }
  return Status();
}

Status HttpResponse::on_line(std::string_view line) {
  switch (state_) {
    case State::kStatusLine:
      return on_status_line(line);
    case State::kHeader:
      return line.empty() ? on_headers_end() : on_header(line);
    case State::kChunkSize:
      return on_chunk_size(line);
    case State::kChunkEnd:
      if (!line.empty()) return fail("bytes after a chunk");
      state_ = State::kChunkSize;
      return Status();
    case State::kTrailer:
      if (line.empty()) state_ = State::kComplete;
      return Status();
    default:
      return fail("unexpected line");
  }
}

Status HttpResponse::on_status_line(std::string_view line) {
  // HTTP/1.1 200 OK
  uint64_t code = 0;
  if (line.size() < 12 || line.substr(0, 7) != "HTTP/1." || line[8] != ' ' ||
      !parse_number(line.substr(9, 3), 10, &code) || code < 100)
    return fail("bad status line");
  code_ = static_cast<int>(code);
  state_ = State::kHeader;
  return Status();
}

Status HttpResponse::on_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return fail("a header without a colon");
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (name == "content-length") {
    uint64_t length = 0;
    if (!parse_number(value, 10, &length)) return fail("bad Content-Length");
    if (has_length_ && length != left_) return fail("two values of Content-Length");
    has_length_ = true;
    left_ = length;
  } else if (name == "transfer-encoding") {
    if (lower(value) != "chunked") return fail("unknown Transfer-Encoding");
    chunked_ = true;
  }
  return Status();
}

Status HttpResponse::on_headers_end() {
  if (code_ < 200) {  // interim: the real one follows
    state_ = State::kStatusLine;
    has_length_ = chunked_ = false;
    left_ = 0;
    return Status();
  }
  if (code_ == 204 || code_ == 304) {
    state_ = State::kComplete;
  } else if (chunked_) {
    state_ = State::kChunkSize;
  } else if (!has_length_) {
    state_ = State::kUntilEnd;
  } else if (left_ > max_body_) {
    return fail("its body is too long");
  } else {
    state_ = left_ == 0 ? State::kComplete : State::kBody;
  }
  return Status();
}

Status HttpResponse::on_chunk_size(std::string_view line) {
  if (!parse_number(trimmed(line.substr(0, line.find(';'))), 16, &left_)) return fail("bad chunk size");
  if (left_ > max_body_ - body_.size()) return fail("its body is too long");
  state_ = left_ == 0 ? State::kTrailer : State::kChunk;
  return Status();
}

Status HttpResponse::take_body(std::string_view* bytes) {
  size_t count = bytes->size();
  if (state_ != State::kUntilEnd) count = std::min<uint64_t>(count, left_);
  if (count > max_body_ - body_.size()) return fail("its body is too long");
  body_ += bytes->substr(0, count);
  bytes->remove_prefix(count);
  if (state_ == State::kUntilEnd) return Status();
  left_ -= count;
  if (left_ == 0) state_ = state_ == State::kChunk ? State::kChunkEnd : State::kComplete;
  return Status();
}

Status HttpResponse::end() {
  if (state_ == State::kUntilEnd) state_ = State::kComplete;
  if (state_ != State::kComplete) return fail("the connection ended in the middle of it");
  return Status();
}

}  // namespace tidewire::metadata
