// The text of an answer, from tokens' bytes: given out in whole characters, and ended by the first stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lm {

class Text {
 public:
  explicit Text(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Adds a token's bytes. Returns what of the text is certain now: no part of a character, and nothing that may begin a stop
  // string. What is no UTF-8 becomes U+FFFD, as Python's decode(errors="replace") has it.
  std::string add(std::string_view bytes);
  bool is_stopped() const { return stopped_; }  // a stop string was found; what is from its begin on is not given out
  // What was held back, at the end of a text that is not stopped.
  std::string rest();

 private:
  std::vector<std::string> stops_;
  std::string bytes_, held_;  // of a character that is not whole; of what may begin a stop string
  bool stopped_ = false;
};

}  // namespace lm
