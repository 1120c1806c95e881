// Images that a library holds compressed.
#pragma once

#include "kernels/kernel.h"

namespace kernelpack {

// The `unpack` of images that are a frame of zstd: with the image `like` as its prefix, where there is one. From any thread.
// Throws Error for a frame that is damaged.
const unsigned char* unpack_zstd(Image& image);

// Unpacks images on a thread of its own if the launcher's devices are likely to be used, so that no first call has to. What is
// not unpacked yet when it is needed, its first user unpacks: so does a forked process.
bool unpack_ahead(const Launcher& launcher, Image* images, int count);

}  // namespace kernelpack
