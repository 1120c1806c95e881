// Registration with torch through the C shim: a refusal is an error code there, where the C++ macros would abort.
#include "ops/library.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <torch/csrc/stable/version.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "ops/torch_symbols.h"

namespace kernelpack {
namespace {

// Returns the path of another loaded library that defines the same namespace, or "".
std::string find_other(const char* marker, const void* own) {
  struct Search {
    const char* marker;
    const void* own;
    std::string found;
  } search{marker, own, {}};
  const auto visit = [](dl_phdr_info* info, size_t /*size*/, void* data) {
    auto& search = *static_cast<Search*>(data);
    if (info->dlpi_name == nullptr || *info->dlpi_name == '\0') return 0;
    void* library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return 0;
    Dl_info place{};
    const void* symbol = dlsym(library, search.marker);
    // dlsym also looks into what a library needs: only the library that holds the symbol counts
    if (symbol != nullptr && symbol != search.own && dladdr(symbol, &place) != 0) search.found = place.dli_fname;
    dlclose(library);
    return search.found.empty() ? 0 : 1;
  };
  dl_iterate_phdr(visit, &search);
  return search.found;
}

// Whether whoever can have written a file can have written the op library too, or is this process's user or root. Who made a
// link decides what it leads to.
bool is_as_trusted(const char* path, const char* self) {
  struct stat library{};
  struct stat link{};
  struct stat file{};
  if (stat(self, &library) != 0 || lstat(path, &link) != 0 || stat(path, &file) != 0) return false;
  const auto known = [&](uid_t owner) { return owner == 0 || owner == geteuid() || owner == library.st_uid; };
  const mode_t others = S_IWGRP | S_IWOTH;
  return known(link.st_uid) && known(file.st_uid) && (file.st_mode & ~library.st_mode & others) == 0;
}

// Returns what the library exports that `kernelpack unbox` made for this release of torch, beside `self`; nullptr if there is
// none.
const Unboxing* find_unboxing(const std::string& self) {
  const uint64_t version = aoti_torch_abi_version();  // a byte each: major, minor, patch
  const auto part = [version](int byte) { return std::to_string(version >> 8 * byte & 0xFF); };
  const std::string path = self.substr(0, self.rfind(".so")) + ".torch-" + part(7) + "." + part(6) + "." + part(5) + ".so";
  if (access(path.c_str(), F_OK) != 0) return nullptr;
  if (!is_as_trusted(path.c_str(), self.c_str())) {
    std::fprintf(
        stderr,
        "kernelpack: %s is not loaded, calls take longer without it: who cannot write the op library may have written it"
        "\n  to fix: remove it, then kernelpack unbox %s\n",
        path.c_str(), self.c_str());
    return nullptr;
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library == nullptr ? nullptr : dlsym(library, kUnboxingSymbol);
  if (symbol == nullptr) {
    std::fprintf(stderr, "kernelpack: %s cannot be used, calls take longer without it: %s\n  to fix: kernelpack unbox %s\n",
                 path.c_str(), dlerror(), self.c_str());
  }
  return static_cast<const Unboxing*>(symbol);
}

}  // namespace

void OpConstructor::warmup(Backend& backend, int backend_index, int device) const {
  for (int i = 0; i < site_count_; ++i) {
    const int target = backend.target(info_, device, sites_[i]->traits);
    const TargetVariants& variants = sites_[i]->variants[backend_index][target];
    for (int row = 0; row < variants.row_count; ++row) {
      backend.launcher().load(variants.kernels[variants.rows[row].kernel], device);
    }
  }
}

void OpConstructor::add_tuned(std::set<std::string>& kernels) const {
  for (int i = 0; i < site_count_; ++i) {
    if (sites_[i]->tuning != nullptr) kernels.insert(sites_[i]->kernel);
  }
}

Library::Library(const LibraryInfo& info) : info_(info), error_(register_all()) {
  if (!error_.empty() && torch_is_here()) std::fprintf(stderr, "kernelpack: %s\n", error_.c_str());
  std::set<std::string> tuned;
  for (int i = 0; i < info_.op_count; ++i) info_.ops[i]->add_tuned(tuned);
  report_unknown_kernels(info_.name_space, tuned);
}

std::string Library::register_all() {
  Dl_info self{};
  dladdr(info_.marker, &self);
  const std::string name_space = info_.name_space;
  if (!torch_is_here()) {
    return std::string(self.dli_fname) + " has not defined torch.ops." + name_space +
           ": there was no libtorch in the process when it was loaded\n  to fix: load torch first; without torch, use the C "
           "functions";
  }
  const std::string symbol = "kernelpack_namespace_" + name_space;
  const std::string other = find_other(symbol.c_str(), info_.marker);
  if (!other.empty()) {
    return std::string(self.dli_fname) + " was not registered: " + other + " already defines torch.ops." + name_space +
           "\n  to fix: load one of them, or build this one with another --namespace";
  }
  const std::string refusal = info_.backend_count == 1 ? info_.backends[0]->cpu_refusal(info_.ops[0]->info()) : "";
  if (!refusal.empty()) return std::string(self.dli_fname) + " was not registered: " + refusal;
  std::vector<TorchLibraryHandle> handles;  // kept for the life of the process: deleting one takes its ops away
  const auto give_up = [&](const std::string& what) {
    for (TorchLibraryHandle handle : handles) aoti_torch_delete_library_object(handle);
    return std::string(self.dli_fname) + " was not registered: torch refused " + what + " of torch.ops." + name_space +
           "; its reason stands above\n  to fix: if another library defines the op, build this one with another --namespace";
  };
  TorchLibraryHandle handle = nullptr;
  if (aoti_torch_library_init_fragment(info_.name_space, self.dli_fname, 0, &handle) != 0) return give_up("the namespace");
  handles.push_back(handle);
  for (int i = 0; i < info_.entry_count; ++i) {
    if (aoti_torch_library_def(handle, info_.entries[i].schema) != 0) return give_up(info_.entries[i].name);
  }
  const auto open = [&](const char* key) {
    if (aoti_torch_library_init_impl(info_.name_space, key, self.dli_fname, 0, &handle) != 0) return false;
    handles.push_back(handle);
    return true;
  };
  const Unboxing* unboxing = find_unboxing(self.dli_fname);
  if (unboxing != nullptr) {
    torch_functions.empty_strided = unboxing->empty_strided;
    for (const char* key : {"Autograd", "ADInplaceOrView"}) {
      if (!open(key)) return give_up(key);
    }
    for (int i = 0; i < info_.entry_count; ++i) {
      const OpEntry& entry = info_.entries[i];
      unboxing->impl_autograd(handles[handles.size() - 2], handles.back(), info_.name_space, entry.schema, entry.name);
    }
  }
  if (!open("Negative")) return give_up("Negative");
  for (int i = 0; i < info_.entry_count; ++i) {
    const OpEntry& entry = info_.entries[i];
    if (entry.negated != nullptr && torch_library_impl(handle, entry.name, entry.negated, TORCH_ABI_VERSION) != 0)
      return give_up(entry.name);
  }
  for (int backend = 0; backend < info_.backend_count; ++backend) {
    if (!open(info_.dispatch_keys[backend])) return give_up(info_.dispatch_keys[backend]);
    for (int i = 0; i < info_.entry_count; ++i) {
      const OpEntry& entry = info_.entries[i];
      const BoxedFunction function = entry.functions[backend];
      if (unboxing != nullptr && unboxing->impl(handle, entry.schema, entry.name, function)) {
        ++unboxed_;
        continue;
      }
      if (torch_library_impl(handle, entry.name, function, TORCH_ABI_VERSION) != 0) return give_up(entry.name);
    }
  }
  return "";
}

void Library::warmup(const char* op, const char* backend, int device) const {
  if (!error_.empty()) throw Error(error_);
  bool found = false;
  for (int b = 0; b < info_.backend_count; ++b) {
    if (backend != nullptr && std::strcmp(info_.backends[b]->launcher().backend, backend) != 0) continue;
    for (int i = 0; i < info_.op_count; ++i) {
      const char* name = std::strstr(info_.ops[i]->info().name, "::") + 2;
      if (op != nullptr && std::strcmp(name, op) != 0) continue;
      info_.ops[i]->warmup(*info_.backends[b], b, device);
      found = true;
    }
  }
  if (!found) {
    throw Error(std::string("torch.ops.") + info_.name_space + " has no op " + (op ? op : "") + " for backend " +
                (backend ? backend : "any"));
  }
}

}  // namespace kernelpack
