// Tensor maps that a kernel puts together in shared memory, publishes in global memory and uses there (PTX ISA,
// tensormap.replace, tensormap.cp_fenceproxy, fence.proxy.tensormap).
#include <cstring>
#include <unordered_map>

#include "simt.h"

namespace simt {

namespace {

struct Event {
  Agent agent;
  Clock clock;
  Site site;
};

struct Published {
  Event by;
  std::vector<Event> acquired, uses;
};
std::unordered_map<uint64_t, Published> maps;  // by the address of each that the block has published

bool known(const Event& event) {
  return self().order.seen[event.agent] >= event.clock;
}

// As kernelpack/simt/machine.py numbers them.
enum Field { ADDRESS, RANK, SIZE, BOX, ELEMENT_STRIDE, STRIDE, ELEMENT, INTERLEAVE, SWIZZLE, FILL };

// An element's bytes by its number (PTX ISA, table "Tensormap new_val validity").
uint8_t bytes_of_element(uint64_t number, Site site) {
  static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4};
  if (number >= sizeof bytes) fail("tensor map", site, "there is no element type %llu", (unsigned long long)number);
  return bytes[number];
}

void replace(TensorMap& map, Field field, int axis, uint64_t value, Site site) {
  auto hold = [&](bool good, const char* what) {
    if (!good) fail("tensor map", site, "%s, it is %llu", what, (unsigned long long)value);
  };
  if (axis > 4) fail("tensor map", site, "there is no axis %d", axis);
  switch (field) {
    case ADDRESS:
      hold(value % 16 == 0, "the address must be a multiple of 16");
      map.address = value;
      break;
    case RANK:
      hold(value < 5, "the rank less one must be below 5");
      map.rank = (uint8_t)(value + 1);
      break;
    case SIZE:
      hold((uint32_t)value, "a size must not be zero");  // an illegal instruction on an H100
      map.sizes[axis] = (uint32_t)value;
      break;
    case BOX:
      hold(value >= 1 && value <= 256, "a box has 1 to 256 elements along an axis");
      map.box[axis] = (uint16_t)value;
      break;
    case ELEMENT_STRIDE:
      hold(value == 1, "the emulator copies every element: the step between them must be 1");
      break;
    case STRIDE:
      hold(value % 16 == 0 && axis < 4, "a stride must be a multiple of 16 bytes, of one of four axes");
      map.strides[axis + 1] = value;
      break;
    case ELEMENT:
      map.element = bytes_of_element(value, site);
      map.strides[0] = map.element;
      break;
    case INTERLEAVE:
      hold(value == 0, "the emulator knows tensors that are not interleaved: the layout must be 0");
      break;
    case SWIZZLE:
      hold(value <= 3, "the swizzle must be 0 to 3");
      map.swizzle = value ? (uint8_t)(16 << value) : 0;
      break;
    case FILL:
      hold(value <= 1, "the filling must be 0 or 1");
      map.nan = (uint8_t)value;
      break;
  }
}

// slots: target in global memory, source in shared memory
void publish(Collected& w, const Slot*, Site site) {
  uint64_t target = w.in[current % LANES][0], source = w.in[current % LANES][1];
  for (int lane = 0; lane < LANES; lane++)
    if (w.in[lane][0] != target || w.in[lane][1] != source)
      fail("tensor map", site, "the lanes of warp %d publish different tensor maps", current / LANES);
  check_shared_range(source, 128, 128, site);
  check_global(target, 128, 128, Access::ASYNC_WRITE, site);
  touch_shared(source, 128, Access::READ, (Agent)current, now(), self().order, site);
  for (const Event& use : maps[target].uses)
    if (!known(use))
      fail_two("tensor map", site, use.site, "the tensor map is replaced, and a copy by the old one may still be in flight");
  memcpy(reinterpret_cast<void*>(target), reinterpret_cast<void*>(source), 128);
  maps[target] = {{(Agent)current, now(), site}, {}, {}};
  int first = current / LANES * LANES;
  for (int t = first; t < first + LANES; t++) threads[t].order.seen[current] = now();  // each has published it
  self().order.seen[current]++;
}

}  // namespace

void reset_tensor_maps() {
  maps.clear();
}

TensorMap use_tensor_map(uint64_t address, Agent agent, Clock clock, Site site) {
  if (kernels_own(address)) {
    auto found = maps.find(address);
    if (found == maps.end()) fail("tensor map", site, "the program has published no tensor map here");
    Published& map = found->second;
    bool acquired = false;
    for (const Event& event : map.acquired) acquired |= known(event);
    if (!acquired)
      fail_two("proxy fence", site, map.by.site,
               "a copy uses a tensor map that threads published; no fence.proxy.tensormap acquires it in between");
    map.uses.push_back({agent, clock, site});
  }
  TensorMap map;
  memcpy(&map, reinterpret_cast<void*>(address), sizeof map);
  return map;
}

extern "C" {

// in: address, field, axis, value
void simt_tensormap_replace(Site site, const Slot* in, Slot*) {
  check_shared_range(in[0], 128, 128, site);
  for (Access access : {Access::READ, Access::WRITE})
    touch_shared(in[0], 128, access, (Agent)current, now(), self().order, site);
  replace(*reinterpret_cast<TensorMap*>(in[0]), (Field)in[1], (int)in[2], in[3], site);
}
// in: target, source
void simt_tensormap_publish(Site site, const Slot* in, Slot* out) {
  if (!off(site)) collective(site, publish, in, 2, out, 0);
}
// in: address
void simt_tensormap_acquire(Site site, const Slot* in, Slot*) {
  if (off(site)) return;
  auto found = maps.find(in[0]);
  if (found == maps.end()) fail("tensor map", site, "the program has published no tensor map here");
  if (!known(found->second.by))
    fail_two("tensor map", site, found->second.by.site, "nothing orders this fence after the map's publication");
  found->second.acquired.push_back({(Agent)current, now(), site});
  self().order.seen[current]++;
}

}  // extern "C"
}  // namespace simt
