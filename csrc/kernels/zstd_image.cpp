// Unpacks images by libzstd, which is linked into the library.
#include "kernels/zstd_image.h"

#include <zstd.h>

namespace kernelpack {

std::unique_ptr<unsigned char[]> unpack_zstd(const Image& image) {
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  std::unique_ptr<unsigned char[]> like;
  const std::unique_ptr<ZSTD_DCtx, Free> context(ZSTD_createDCtx());
  if (context == nullptr) throw std::bad_alloc();
  size_t result = 0;
  if (image.like != nullptr) {
    like = unpack_zstd(*image.like);
    result = ZSTD_DCtx_refPrefix(context.get(), like.get(), image.like->size);
  }
  std::unique_ptr<unsigned char[]> bytes(new unsigned char[size_t{image.size} + 1]);
  if (ZSTD_isError(result) == 0) {
    result = ZSTD_decompressDCtx(context.get(), bytes.get(), image.size, image.bytes, image.stored);
  }
  if (ZSTD_isError(result) != 0 || result != image.size) {
    throw Error(std::string("an embedded image is damaged: ") +
                (ZSTD_isError(result) != 0 ? ZSTD_getErrorName(result) : "it is too short") +
                "\n  to fix: install the library again, or build it again");
  }
  bytes[image.size] = 0;
  return bytes;
}

}  // namespace kernelpack
