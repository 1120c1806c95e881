// A product of one row with a weight in Q4_1, as ggml makes it on one thread: the row is quantised to Q8_1, then one dot a
// column.
#include <cstddef>
#include <cstdint>

using Dot = void (*)(int n, float* result, std::size_t, const void* x, std::size_t, const void* y, std::size_t, int rows);
using Quantize = void (*)(const float* x, void* y, std::int64_t n);

extern "C" void product(Dot dot, Quantize quantize, const float* x, void* quantized, const char* weight, std::int64_t row_bytes,
                        int columns, int depth, float* out) {
  quantize(x, quantized, depth);
  for (int n = 0; n < columns; ++n) dot(depth, out + n, 0, weight + n * row_bytes, 0, quantized, 0, 1);
}
