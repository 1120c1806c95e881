// Gives out the text of an answer as far as it is certain. Stop strings are found as Knuth, Morris and Pratt do, by looking at
// each byte once: a long one costs no more than a short one.
#include "text.h"

#include <algorithm>
#include <utility>

#include "utf8.h"

namespace lm {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

Text::Text(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) continue;
    Stop& stop = stops_.emplace_back(Stop{std::move(text), {0}});
    for (size_t i = 1; i < stop.text.size(); ++i) stop.shorter.push_back(stop.after(stop.shorter.back(), stop.text[i]));
  }
}

size_t Text::Stop::after(size_t seen, char next) const {
  while (seen > 0 && text[seen] != next) seen = shorter[seen - 1];
  return text[seen] == next ? seen + 1 : 0;
}

std::string Text::add(std::string_view bytes) {
  if (stopped_) return "";
  bytes_ += bytes;
  std::string characters;
  std::string_view left = bytes_;
  while (!left.empty()) {
    const Character next = first_character(left);
    if (next.kind == Utf8::cut) break;
    characters += next.kind == Utf8::whole ? left.substr(0, next.size) : kReplacement;
    left.remove_prefix(next.size);
  }
  bytes_.erase(0, bytes_.size() - left.size());
  return give(characters);
}

std::string Text::rest() {
  std::string last;
  if (!stopped_ && !std::exchange(bytes_, "").empty()) last = give(kReplacement);
  return last + std::exchange(held_, "");
}

std::string Text::give(std::string_view characters) {
  for (const char next : characters) {
    held_ += next;
    size_t found = 0;
    for (Stop& stop : stops_) {
      stop.seen = stop.after(stop.seen, next);
      if (stop.seen == stop.text.size()) found = std::max(found, stop.seen);
    }
    if (found > 0) {
      stopped_ = true;
      held_.resize(held_.size() - found);
      return std::exchange(held_, "");
    }
  }
  size_t kept = 0;
  for (const Stop& stop : stops_) kept = std::max(kept, stop.seen);
  const std::string certain = held_.substr(0, held_.size() - kept);
  held_.erase(0, certain.size());
  return certain;
}

}  // namespace lm
