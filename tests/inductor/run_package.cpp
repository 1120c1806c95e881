// Loads an AOTInductor package, and prints three elements of what the model makes of ones. It knows neither Python nor
// kernelpack.
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include <iostream>

int main(int /*count*/, char** arguments) {
  torch::inductor::AOTIModelPackageLoader loader(arguments[1]);
  std::vector<torch::Tensor> outputs = loader.run({torch::ones({1000}), torch::ones({1000})});
  std::cout << outputs[0][0].item<float>() << " " << outputs[0][500].item<float>() << " " << outputs[0][999].item<float>()
            << "\n";
}
