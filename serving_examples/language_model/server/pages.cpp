// Pages of the cache, by who holds them and by what they hold.
#include "pages.h"

namespace lm {

Pages::Pages(int count, int size) : size_(size), pages_(count) {
  for (int32_t page = 0; page < count; ++page) pages_[page].place = unheld_.insert(unheld_.end(), page);
}

int32_t Pages::take() {
  if (unheld_.empty()) return -1;
  const int32_t page = unheld_.front();
  unheld_.pop_front();
  forget(page);
  pages_[page].holders = 1;
  return page;
}

void Pages::forget(int32_t page) {
  Page& known = pages_[page];
  if (known.contents != 0) known_.erase(known.key);
  known.contents = 0;
}

void Pages::give_back(int32_t page) {
  Page& given = pages_[page];
  if (--given.holders > 0) return;
  given.place = unheld_.insert(given.contents == 0 ? unheld_.begin() : unheld_.end(), page);
}

int32_t Pages::find(uint64_t before, const int* tokens) {
  const auto found = known_.find(key_of(before, tokens));
  if (found == known_.end()) return -1;
  Page& page = pages_[found->second];
  if (page.holders++ == 0) unheld_.erase(page.place);
  return found->second;
}

uint64_t Pages::know(int32_t page, uint64_t before, const int* tokens) {
  std::string key = key_of(before, tokens);
  const auto [place, is_new] = known_.emplace(key, page);
  if (!is_new) return pages_[place->second].contents;
  pages_[page].key = std::move(key);
  return pages_[page].contents = ++named_;
}

// All of it, not a digest: two texts never share a page because their digests are equal.
std::string Pages::key_of(uint64_t before, const int* tokens) const {
  std::string key(reinterpret_cast<const char*>(&before), sizeof before);
  return key.append(reinterpret_cast<const char*>(tokens), size_ * sizeof *tokens);
}

}  // namespace lm
