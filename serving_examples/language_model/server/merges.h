// Merges neighbours in a row of tokens, as byte-level BPE does: again and again the pair whose merge comes first in the
// vocabulary's list, of equal ones the leftmost. A heap of what can be merged, and links between what is left, make that
// n log n for n tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

namespace lm {

class Merges {
 public:
  // A token of the row, or -1 where it was merged into the one before; and its neighbours' places.
  struct Part {
    int token, before, next;
  };
  // The row, and memory that is used again for the next one.
  struct Row {
    std::vector<Part> parts;
    std::vector<uint64_t> heap;  // a merge's place in the list, then its left part's in the row

    void push(int token) {
      const int at = static_cast<int>(parts.size());
      parts.push_back({token, at - 1, at + 1});
    }
  };

  void reserve(size_t count) {
    list_.reserve(count);
    places_.reserve(count);
  }
  // Adds the list's next merge. Returns whether it is another one than those before.
  bool add(int left, int right, int result) {
    list_.push_back({left, right, result});
    return places_.emplace(pair(left, right), list_.size() - 1).second;
  }

  // Merges all that can be, and adds what is left to `tokens`. The row is empty after it.
  void apply(Row& row, std::vector<int>& tokens) const {
    auto& [parts, heap] = row;
    const int size = static_cast<int>(parts.size());
    for (int i = 0; i < size; ++i) offer(row, i);
    std::make_heap(heap.begin(), heap.end(), std::greater<>());
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      const int at = static_cast<int>(heap.back() & 0xFFFFFFFF);
      const Merge& merge = list_[heap.back() >> 32];
      heap.pop_back();
      Part& left = parts[at];
      if (left.token != merge.left || left.next == size || parts[left.next].token != merge.right) continue;  // merged since
      Part& right = parts[left.next];
      left = {merge.result, left.before, right.next};
      right.token = -1;
      if (left.next < size) parts[left.next].before = at;
      for (const int changed : {left.before, at}) {
        if (changed >= 0 && offer(row, changed)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
      }
    }
    for (int i = 0; i < size; i = parts[i].next) tokens.push_back(parts[i].token);
    parts.clear();
  }

 private:
  struct Merge {
    int left, right, result;
  };

  static uint64_t pair(int left, int right) { return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right); }

  // Adds the merge of a part with the next one after the heap. Returns whether there is one.
  bool offer(Row& row, int at) const {
    const Part& left = row.parts[at];
    if (left.next == static_cast<int>(row.parts.size())) return false;
    const auto found = places_.find(pair(left.token, row.parts[left.next].token));
    if (found == places_.end()) return false;
    row.heap.push_back(static_cast<uint64_t>(found->second) << 32 | static_cast<uint32_t>(at));
    return true;
  }

  std::vector<Merge> list_;
  std::unordered_map<uint64_t, uint32_t> places_;  // in the list, by left and right
};

}  // namespace lm
