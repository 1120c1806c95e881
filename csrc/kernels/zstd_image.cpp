// Unpacks images by libzstd, which is linked into the library.
#include "kernels/zstd_image.h"

#include <zstd.h>

#include <system_error>
#include <thread>

namespace kernelpack {
namespace {

struct Free {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};
using Context = std::unique_ptr<ZSTD_DCtx, Free>;

const unsigned char* unpack(Image& image, ZSTD_DCtx* context) {
  if (const unsigned char* known = image.unpacked.load(std::memory_order_acquire)) return known;
  size_t result = 0;
  if (image.like != nullptr) {
    const unsigned char* like = unpack(*image.like, context);
    result = ZSTD_DCtx_refPrefix(context, like, image.like->size);
  }
  std::unique_ptr<unsigned char[]> bytes(new unsigned char[size_t{image.size} + 1]);
  if (ZSTD_isError(result) == 0) result = ZSTD_decompressDCtx(context, bytes.get(), image.size, image.bytes, image.stored);
  if (ZSTD_isError(result) != 0 || result != image.size) {
    throw Error(std::string("an embedded image is damaged: ") +
                (ZSTD_isError(result) != 0 ? ZSTD_getErrorName(result) : "it is too short") +
                "\n  to fix: install the library again, or build it again");
  }
  bytes[image.size] = 0;
  const unsigned char* first = nullptr;
  if (!image.unpacked.compare_exchange_strong(first, bytes.get(), std::memory_order_acq_rel)) return first;  // another thread's
  return bytes.release();
}

Context new_context() {
  Context context(ZSTD_createDCtx());
  if (context == nullptr) throw std::bad_alloc();
  return context;
}

void unpack_all(Image* images, int count) {
  try {
    const Context context = new_context();
    for (int i = 0; i < count; ++i) unpack(images[i], context.get());
  } catch (const std::exception&) {  // whoever needs the image is told
  }
}

}  // namespace

const unsigned char* unpack_zstd(Image& image) {
  return unpack(image, new_context().get());
}

bool unpack_ahead(const Launcher& launcher, Image* images, int count) {
  if (launcher.is_likely == nullptr || !launcher.is_likely()) return false;
  try {
    std::thread(unpack_all, images, count).detach();
  } catch (const std::system_error&) {  // no thread is to be had
    return false;
  }
  return true;
}

}  // namespace kernelpack
