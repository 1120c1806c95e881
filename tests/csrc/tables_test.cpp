// Dispatch tables, the arithmetic of host functions.
#include <vector>

#include "expect.h"
#include "kernels/host_math.h"
#include "kernels/table.h"

using namespace kernelpack;

namespace {

TEST(the_variant_that_assumes_most_and_may_is_found) {
  Kernel kernels[4] = {};
  const uint8_t slots[] = {2, 0};
  const int64_t meta[] = {64};
  const ParameterList lists[] = {{nullptr, 3}, {slots, 2}};
  const int64_t* const metas[] = {nullptr, meta};
  const VariantRow rows[] = {{0, 0, 0}, {1, 1, 0}, {2, 0, 1}, {3, 0, 0}};
  const Point points[] = {{0b1101, 0}, {0, 3}, {uint64_t{1} << 63, 3}};
  const TargetVariants table{points, rows, 4, kernels, lists, metas};
  const auto found = [&](int point, uint64_t held) { return table.find(point, held).kernel; };
  EXPECT(found(0, bits(true, true, true, true)) == &kernels[0]);
  EXPECT(found(0, bits(false, true, true, true)) == &kernels[1]);
  EXPECT(found(0, bits(false, true, false, true)) == &kernels[2]);
  EXPECT(found(0, bits(false, true)) == nullptr);
  EXPECT(found(1, ~uint64_t{0}) == nullptr);
  EXPECT(found(2, ~uint64_t{0}) == &kernels[3]);
  EXPECT(found(2, ~uint64_t{0} >> 1) == nullptr);
  EXPECT(table.at(1).parameters == slots && table.at(1).parameter_count == 2 && table.at(1).meta == nullptr);
  EXPECT(table.at(2).parameters == nullptr && table.at(2).parameter_count == 3 && table.at(2).meta == meta);
}

TEST(values_that_were_not_built_have_no_place) {
  const ValueAxis<2, 2, 2> axis = {"WIDTH", {16, 64}, 0xdaa66d2c7ddf743f, {0, 1}, {1, 0}};  // as a build made it
  EXPECT(axis.place(16) == 0);
  EXPECT(axis.place(64) == 1);
  for (int64_t other : {int64_t{0}, int64_t{-16}, int64_t{17}, int64_t{16} << 32, INT64_MIN, INT64_MAX})
    EXPECT(axis.place(other) == -1);
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
