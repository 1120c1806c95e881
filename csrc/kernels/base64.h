// Decodes base64 images.
#pragma once

#include <memory>

#include "kernels/kernel.h"

namespace kernelpack {

// Returns the bytes of an image, followed by a NUL so that PTX text is a C string. Throws Error if the text is not
// base64 of `image.size` bytes.
std::unique_ptr<unsigned char[]> decode(const Base64Image& image);

}  // namespace kernelpack
