// Tests of the loaders and launchers, which know nothing of torch. `kernels_test NAME` runs one; test_kernels.py runs all.
#include "expect.h"

int main(int count, char** arguments) {
  if (count < 2) {
    for (const auto& [name, test] : all_tests()) std::cout << name << "\n";
    return 0;
  }
  all_tests().at(arguments[1])();
  return 0;
}
