// Images that a library holds compressed.
#pragma once

#include "kernels/kernel.h"

namespace kernelpack {

// The `unpack` of images that are a frame of zstd: with the image `like` as its prefix, where there is one. From any thread.
// Throws Error for a frame that is damaged.
std::unique_ptr<unsigned char[]> unpack_zstd(const Image& image);

}  // namespace kernelpack
