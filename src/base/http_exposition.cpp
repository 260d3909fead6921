// SPDX-License-Identifier: Apache-2.0
#include "base/http_exposition.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

namespace tidewire {
namespace {

constexpr size_t kMaxHead = 8192;
constexpr size_t kMaxConnections = 64;
constexpr Nanos kReadTime = 2 * kSecond;
constexpr Nanos kWriteTime = 5 * kSecond;

struct Split {
  std::string host, port;
};

std::optional<Split> split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) return std::nullopt;
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return Split{host, address.substr(colon + 1)};
}

Result<UniqueFd> listen_on(const std::string& address) {
  const std::optional<Split> parts = split(address);
  if (!parts) return Status::error(Code::kInvalidArgument, "bad address '{}': it is host:port or [v6]:port", address);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(parts->host.c_str(), parts->port.c_str(), &hints, &found)) {
    return Status::error(Code::kInvalidArgument, "bad address '{}': {}", address, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  Status last;
  for (const addrinfo* each = found; each; each = each->ai_next) {
    UniqueFd fd(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // SO_REUSEADDR lets a restarted process have its port back at once; SO_REUSEPORT would let two share it unnoticed.
    const int one = 1;
    if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        ::bind(fd.get(), each->ai_addr, each->ai_addrlen) != 0 || ::listen(fd.get(), 16) != 0) {
      last = errno_status(errno, "listen on " + address);
      continue;
    }
    return fd;
  }
  return last;
}

std::string bound_address(int fd, const std::string& address) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return address;
  const uint16_t port = storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                                      : reinterpret_cast<sockaddr_in*>(&storage)->sin_port;
  return address.substr(0, address.rfind(':') + 1) + std::to_string(ntohs(port));
}

// 127.0.0.0/8, ::1, and the first inside the second.
bool is_loopback(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) return ntohl(reinterpret_cast<const sockaddr_in&>(peer).sin_addr.s_addr) >> 24 == 127;
  if (peer.ss_family != AF_INET6) return false;
  const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

const char* reason_of(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 507:
      return "Insufficient Storage";
    default:
      return "Internal Server Error";
  }
}

std::string response(const HttpAnswer& answer, bool head) {
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                     answer.code, reason_of(answer.code), answer.type, answer.body.size(), head ? "" : answer.body);
}

bool is_header(std::string_view line, std::string_view name) {
  return line.size() > name.size() && line[name.size()] == ':' &&
         ::strncasecmp(line.data(), name.data(), name.size()) == 0;
}

std::string value_of(std::string_view line) {
  line.remove_prefix(line.find(':') + 1);
  while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
  return std::string(line);
}

std::map<std::string, std::string> query_of(std::string_view text) {
  std::map<std::string, std::string> query;
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    const std::string_view pair = text.substr(0, end);
    const size_t equals = std::min(pair.find('='), pair.size());
    if (!pair.empty())
      query.emplace(percent_decoded(pair.substr(0, equals)),
                    percent_decoded(pair.substr(std::min(equals + 1, pair.size()))));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return query;
}

}  // namespace

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char letter) {
    return letter >= '0' && letter <= '9' ? letter - '0' : (letter | 0x20) - 'a' + 10;
  };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() &&
                        std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                        std::isxdigit(static_cast<unsigned char>(text[i + 2]));
    if (escape) {
      plain += static_cast<char>(digit(text[i + 1]) << 4 | digit(text[i + 2]));
      i += 2;
    } else {
      plain += text[i] == '+' ? ' ' : text[i];
    }
  }
  return plain;
}

bool equal_in_constant_time(std::string_view left, std::string_view right) {
  unsigned char different = left.size() != right.size();
  for (size_t i = 0; i < left.size(); ++i)
    different |= static_cast<unsigned char>(left[i] ^ (right.empty() ? '\1' : right[i % right.size()]));
  return different == 0;
}

// One client: reads its request, answers it, and takes what else it sends until it has read the answer.
class HttpExposition::Connection {
 public:
  Connection(UniqueFd fd, bool local) : fd_(std::move(fd)), local_(local), deadline_(monotonic_now() + kReadTime) {}

  int fd() const { return fd_.get(); }
  short events() const { return state_ == State::kWriting ? POLLOUT : POLLIN; }
  Nanos deadline() const { return deadline_; }

  // Does what the socket allows; false when it is over.
  bool go_on(const Handler& handler, size_t max_body) {
    if (state_ == State::kReading && !read(handler, max_body)) return false;
    if (state_ == State::kWriting && !write()) return false;
    return state_ != State::kDraining || drain();
  }

 private:
  enum class State { kReading, kWriting, kDraining };

  bool read(const Handler& handler, size_t max_body) {
    char buffer[16384];
    for (;;) {
      const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return true;
      if (got <= 0) return false;
      in_.append(buffer, static_cast<size_t>(got));
      if (head_end_ == 0) {
        const size_t end = in_.find("\r\n\r\n");
        if (end == std::string::npos ? in_.size() > kMaxHead : end > kMaxHead) return false;
        if (end == std::string::npos) continue;
        head_end_ = end + 4;
        if (const int error = parse_head(std::string_view(in_).substr(0, end)))
          return answer({error, "this request can't be served\n"});
        if (body_length_ > max_body) return answer({413, fmt::format("a body has at most {} bytes\n", max_body)});
      }
      if (in_.size() - head_end_ < body_length_) continue;
      request_.body = in_.substr(head_end_, body_length_);
      try {
        return answer(handler(request_));
      } catch (const std::exception& error) {
        return answer({500, std::string(error.what()) + "\n"});
      }
    }
  }

  // 0 or the code of an error.
  int parse_head(std::string_view head) {
    const std::string_view first = head.substr(0, head.find("\r\n"));
    request_.method = first.substr(0, first.find(' '));
    std::string_view target =
        first.size() > request_.method.size() ? first.substr(request_.method.size() + 1) : std::string_view();
    target = target.substr(0, target.find(' '));
    const size_t mark = target.find('?');
    request_.path = target.substr(0, mark);
    if (mark != std::string_view::npos) request_.query = query_of(target.substr(mark + 1));
    head_only_ = request_.method == "HEAD";
    if (head_only_) request_.method = "GET";
    request_.local = local_;
    bool has_length = false;
    for (size_t at = first.size(); at < head.size();) {
      at += 2;
      const std::string_view line = head.substr(at, head.find("\r\n", at) - at);
      at += line.size();
      if (is_header(line, "Authorization")) request_.authorization = value_of(line);
      for (const char* sign : {"Origin", "Forwarded", "X-Forwarded-For", "Via"})
        if (is_header(line, sign)) request_.local = false;
      if (is_header(line, "Transfer-Encoding")) return 501;
      if (!is_header(line, "Content-Length")) continue;
      const std::string number = value_of(line);
      if (has_length || number.empty() || number.size() > 12 ||
          number.find_first_not_of("0123456789") != std::string::npos)
        return 400;
      has_length = true;
      body_length_ = std::stoull(number);
    }
    return 0;
  }

  bool answer(const HttpAnswer& answer) {
    out_ = response(answer, head_only_);
    in_ = std::string();
    state_ = State::kWriting;
    deadline_ = monotonic_now() + kWriteTime;
    return true;
  }

  bool write() {
    while (sent_ < out_.size()) {
      const ssize_t now = ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (now > 0) {
        sent_ += static_cast<size_t>(now);
      } else if (now < 0 && errno != EAGAIN && errno != EINTR) {
        return false;
      } else if (now == 0 || errno == EAGAIN) {
        return true;
      }
    }
    // Closing with unread bytes would reset the connection before the answer is read.
    ::shutdown(fd_.get(), SHUT_WR);
    state_ = State::kDraining;
    return true;
  }

  bool drain() {
    char buffer[16384];
    // Not all of it at once: whoever sends faster than this must not keep the thread.
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }

  UniqueFd fd_;
  const bool local_;
  State state_ = State::kReading;
  Nanos deadline_;
  std::string in_;
  size_t head_end_ = 0;  // where the body begins; 0 = not known yet
  uint64_t body_length_ = 0;
  HttpRequest request_;
  bool head_only_ = false;
  std::string out_;
  size_t sent_ = 0;
};

Status HttpExposition::start(const std::string& address, std::map<std::string, Page> pages) {
  const auto find = [pages = std::move(pages)](const HttpRequest& request) -> HttpAnswer {
    if (request.method != "GET") return {405, "only GET\n"};
    const auto page = pages.find(request.path);
    if (page == pages.end()) return {404, "no such page\n"};
    return {200, page->second(), "text/plain; version=0.0.4; charset=utf-8"};
  };
  return start(address, kMaxHead, find, "tw-metrics");
}

Status HttpExposition::start(const std::string& address, size_t max_body, Handler handler, const char* thread_name) {
  TW_ASSIGN_OR_RETURN(listener_, listen_on(address));
  address_ = bound_address(listener_.get(), address);
  max_body_ = max_body;
  handler_ = std::move(handler);
  return thread_.start(thread_name, [this](int stop_fd) { serve(stop_fd); });
}

void HttpExposition::serve(int stop_fd) {
  std::list<Connection> connections;
  std::vector<pollfd> waits;
  bool out_of_descriptors = false;
  for (;;) {
    Nanos wake = out_of_descriptors ? monotonic_now() + 100 * kMillisecond : kNever;
    // Without a pause a listener whose queue can't be emptied would spin.
    const bool listening = connections.size() < kMaxConnections && !out_of_descriptors;
    waits.assign({{stop_fd, POLLIN, 0}, {listening ? listener_.get() : -1, POLLIN, 0}});
    for (const Connection& connection : connections) {
      waits.push_back({connection.fd(), connection.events(), 0});
      wake = std::min(wake, connection.deadline());
    }
    const Nanos left = wake == kNever ? -1 : std::max<Nanos>(wake - monotonic_now(), 0);
    if (::poll(waits.data(), waits.size(), left < 0 ? -1 : static_cast<int>(left / kMillisecond + 1)) < 0 &&
        errno != EINTR)
      return;
    if (waits[0].revents != 0) return;
    out_of_descriptors = false;
    size_t index = 2;
    for (auto each = connections.begin(); each != connections.end(); ++index) {
      // What has arrived counts, even when another's answer took so long that it is late now.
      const bool over =
          waits[index].revents != 0 ? !each->go_on(handler_, max_body_) : monotonic_now() >= each->deadline();
      each = over ? connections.erase(each) : std::next(each);
    }
    if (waits[1].revents == 0) continue;
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    UniqueFd fd(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    out_of_descriptors = !fd.valid() && (errno == EMFILE || errno == ENFILE);
    if (fd.valid()) connections.emplace_back(std::move(fd), is_loopback(peer));
  }
}

void serve_metrics(const std::string& address, const Metrics& metrics, HttpExposition* server) {
  if (address.empty()) return;
  const Status status = server->start(address, {{"/metrics", [&metrics] { return metrics.expose(); }},
                                                {"/health", [] { return std::string("ok\n"); }}});
  if (!status.ok()) {
    log::warn("metrics_off", "no metrics are served: {}; choose another port in TIDEWIRE_METRICS, or port 0",
              status.message());
  } else if (server->address() != address) {
    log::warn("metrics_on", "metrics are served address={} path=/metrics", server->address());
  } else {
    log::info("metrics_on", "metrics are served address={} path=/metrics", server->address());
  }
}

}  // namespace tidewire
