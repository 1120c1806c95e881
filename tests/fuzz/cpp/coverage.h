// Which branches of the code under test were reached, by this process and its forks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coverage {

void begin();
uint32_t count();  // of different branches since `begin`

}  // namespace coverage
