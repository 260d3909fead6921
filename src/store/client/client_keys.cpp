// SPDX-License-Identifier: Apache-2.0
//
// What the master alone answers: where objects are, how large, whether they are there, and their removal.
#include <algorithm>
#include <type_traits>

#include "store/client/call.h"
#include "store/client/client.h"

namespace tidewire::store {

// Asks about the keys, a part of them at a time. `entries`: where the answer has one entry for each key; those of a
// part that was not answered are `failed(why)`.
template <typename Answer, typename Entry, typename Request>
std::vector<Entry> Client::about(const std::vector<std::string>& keys, Request request,
                                 std::vector<Entry> Answer::*entries, Entry (*failed)(Code), bool repeat) {
  std::vector<Entry> all;
  all.reserve(keys.size());
  for (size_t begin = 0; begin < keys.size(); begin += kKeysAtOnce) {
    const size_t end = std::min(begin + kKeysAtOnce, keys.size());
    request.keys.assign(keys.begin() + static_cast<ptrdiff_t>(begin), keys.begin() + static_cast<ptrdiff_t>(end));
    Answer answer;
    Code code = call(request, deadline(), &answer, repeat);
    std::vector<Entry>& part = answer.*entries;
    if (code == Code::kOk && part.size() != end - begin) code = Code::kRpcFailed;
    if constexpr (std::is_same_v<Answer, GetAnswer>)
      if (code == Code::kOk) read_lease_.store(answer.lease - kReadMargin);
    for (size_t i = begin; i < end; ++i) all.push_back(code == Code::kOk ? std::move(part[i - begin]) : failed(code));
  }
  return all;
}

std::vector<GetPlace> Client::places(const std::vector<std::string>& keys) {
  return about(
      keys, Get{}, &GetAnswer::gets, +[](Code why) { return GetPlace{why}; }, true);
}

std::vector<int64_t> Client::sizes(const std::vector<std::string>& keys) {
  std::vector<int64_t> results;
  for (const GetPlace& place : places(keys))
    results.push_back(place.code == Code::kOk ? static_cast<int64_t>(place.size) : static_cast<int64_t>(place.code));
  return results;
}

std::vector<int64_t> Client::exists(const std::vector<std::string>& keys) {
  std::vector<int64_t> results;
  for (const Code code : about(
           keys, Exists{}, &CodesAnswer::codes, +[](Code why) { return why; }, true))
    results.push_back(code == Code::kOk ? 1 : code == Code::kNotFound ? 0 : static_cast<int64_t>(code));
  return results;
}

std::vector<int64_t> Client::remove(const std::vector<std::string>& keys, bool force) {
  std::vector<int64_t> results;
  Remove request;
  request.force = force;
  for (const Code code : about(
           keys, std::move(request), &CodesAnswer::codes, +[](Code why) { return why; }, false))
    results.push_back(static_cast<int64_t>(code));
  return results;
}

int64_t Client::remove_matching(const std::string& pattern, bool force) {
  CountAnswer answer;
  const Code code = call(RemoveMatching{pattern, force}, deadline(), &answer, false);
  if (code != Code::kOk) return static_cast<int64_t>(code);
  return answer.code == Code::kOk ? static_cast<int64_t>(answer.count) : static_cast<int64_t>(answer.code);
}

}  // namespace tidewire::store
