// Dispatch tables, base64, the arithmetic of host functions.
#include <vector>

#include "expect.h"
#include "kernels/base64.h"
#include "kernels/host_math.h"
#include "kernels/table.h"

using namespace kernelpack;

namespace {

TEST(the_variant_that_assumes_most_and_may_is_found) {
  Kernel kernels[3] = {};
  const Variant variants[] = {{&kernels[0], nullptr, 0, nullptr},
                              {&kernels[1], nullptr, 0, nullptr},
                              {&kernels[2], nullptr, 0, nullptr},
                              {&kernels[0], nullptr, 0, nullptr}};
  const Point points[] = {{0b1101, 0}, {0, 3}, {uint64_t{1} << 63, 3}};
  const TargetVariants table{points, variants, 4};
  EXPECT(table.find(0, bits(true, true, true, true)) == &variants[0]);
  EXPECT(table.find(0, bits(false, true, true, true)) == &variants[1]);
  EXPECT(table.find(0, bits(false, true, false, true)) == &variants[2]);
  EXPECT(table.find(0, bits(false, true)) == nullptr);
  EXPECT(table.find(1, ~uint64_t{0}) == nullptr);
  EXPECT(table.find(2, ~uint64_t{0}) == &variants[3]);
  EXPECT(table.find(2, ~uint64_t{0} >> 1) == nullptr);
}

TEST(values_that_were_not_built_have_no_place) {
  const ValueAxis<2, 2, 2> axis = {"WIDTH", {16, 64}, 0xdaa66d2c7ddf743f, {0, 1}, {1, 0}};  // as a build made it
  EXPECT(axis.place(16) == 0);
  EXPECT(axis.place(64) == 1);
  for (int64_t other : {int64_t{0}, int64_t{-16}, int64_t{17}, int64_t{16} << 32, INT64_MIN, INT64_MAX})
    EXPECT(axis.place(other) == -1);
}

TEST(base64_of_other_sizes_and_letters_is_refused) {
  const auto decoded = [](std::vector<const char*> chunks, size_t size) {
    const Base64Image image{chunks.data(), chunks.size(), size};
    const auto bytes = decode(image);
    EXPECT(bytes[size] == 0);
    return std::string(reinterpret_cast<const char*>(bytes.get()), size);
  };
  EXPECT(decoded({"aW1hZ2U="}, 5) == "image");
  EXPECT(decoded({"aW1h", "Z2U="}, 5) == "image");
  EXPECT(decoded({"aW1hZ2Vz"}, 6) == "images");
  EXPECT(decoded({"aQ=="}, 1) == "i");
  EXPECT(decoded({}, 0).empty());
  for (const auto& [text, size] : std::vector<std::pair<const char*, size_t>>{{"aW1hZ2U=", 4},
                                                                              {"aW1hZ2U=", 6},
                                                                              {"aW1hZ2U", 5},
                                                                              {"aW1h!2U=", 5},
                                                                              {"aW=hZ2U=", 5},
                                                                              {"aW1hZ2U=aW1h", 8},
                                                                              {"====", 1}}) {
    expect_error("an embedded image is corrupt", [&, text = text, size = size] { decoded({text}, size); });
  }
}

TEST(arithmetic_has_pythons_meaning) {
  EXPECT(floor_div(int64_t{-7}, int64_t{2}) == -4 && floor_mod(int64_t{-7}, int64_t{2}) == 1);
  EXPECT(floor_div(int64_t{7}, int64_t{-2}) == -4 && floor_mod(int64_t{7}, int64_t{-2}) == -1);
  EXPECT(floor_div(1.0, 0.1) == 9.0 && floor_div(-1.5, HUGE_VAL) == -1.0 && std::signbit(floor_mod(0.0, -1.5)));
  EXPECT(floor_div(INT64_MIN, int64_t{-1}) == INT64_MIN && floor_mod(INT64_MIN, int64_t{-1}) == 0);
  EXPECT(cdiv(7, 2) == 4 && cdiv(-7, 2) == -3 && cdiv(0, 5) == 0);
  EXPECT(next_power_of_2(0) == 1 && next_power_of_2(5) == 8 && next_power_of_2(8) == 8);
  expect_error("division or modulo by zero", [] { floor_div(int64_t{1}, int64_t{0}); });
  expect_error("division by zero", [] { true_div(1, 0); });
}

}  // namespace
