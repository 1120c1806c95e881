// The text of an answer, from tokens' bytes: given out in whole characters, and ended by the first stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lm {

class Text {
 public:
  // A text ends before the stop string that is whole first; of several, before the longest. They are UTF-8; empty ones are
  // none.
  explicit Text(std::vector<std::string> stops);

  // Adds a token's bytes. Returns what of the text is certain now: no part of a character, and nothing that may begin a stop
  // string. What is no UTF-8 becomes U+FFFD, as Python's decode(errors="replace") has it.
  std::string add(std::string_view bytes);
  bool is_stopped() const { return stopped_; }  // a stop string was found; what is from its begin on is not given out
  // What was held back, at the end of a text: nothing if it is stopped. May find a stop string that holds U+FFFD.
  std::string rest();

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> shorter;  // of each beginning of the text: the longest other one that it ends with
    size_t seen = 0;              // how much of the text's beginning the answer ends with

    size_t after(size_t seen, char next) const;
  };
  std::string give(std::string_view characters);

  std::vector<Stop> stops_;
  std::string bytes_, held_;  // of a character that is not whole; of what may begin a stop string
  bool stopped_ = false;
};

}  // namespace lm
