// The pages of the cache: who holds them, and which of them another sequence may begin with.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

namespace lm {

class Pages {
 public:
  Pages(int count, int size);

  // A page whose contents nobody needs, -1 where all are held. Of those with known contents the one that was used longest ago
  // is forgotten first.
  int32_t take();
  void give_back(int32_t page);  // of one holder; known contents stay until the page is taken

  // A page is known by its tokens and by all before them: by what the page before it holds, 0 for the first one.
  uint64_t contents(int32_t page) const { return pages_[page].contents; }
  // Holds the page of these `size` tokens after `before`; -1 where none is known.
  int32_t find(uint64_t before, const int* tokens);
  // Makes a full page known. Returns what it holds: another page may hold the same already.
  uint64_t know(int32_t page, uint64_t before, const int* tokens);

  void forget(int32_t page);  // no other sequence finds it

  int available() const { return static_cast<int>(unheld_.size()); }
  int count() const { return static_cast<int>(pages_.size()); }
  int size() const { return size_; }

 private:
  struct Page {
    int holders = 0;
    uint64_t contents = 0;  // 0: not known
    std::string key;
    std::list<int32_t>::iterator place;  // among those that nobody holds
  };
  std::string key_of(uint64_t before, const int* tokens) const;

  int size_;
  uint64_t named_ = 0;
  std::vector<Page> pages_;
  std::list<int32_t> unheld_;  // the next one to be taken is the first
  std::unordered_map<std::string, int32_t> known_;
};

}  // namespace lm
