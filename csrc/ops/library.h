// Registers a library's ops with torch, and what every library exports.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <set>
#include <string>

#include "ops/boxed.h"
#include "ops/call.h"

namespace kernelpack {

// Constructor of an op: owns the kernels of its launches. Generated classes derive from it.
class OpConstructor {
 public:
  constexpr OpConstructor(const OpInfo& info, const LaunchSite* const* sites, int site_count)
      : info_(info), sites_(sites), site_count_(site_count) {}
  const OpInfo& info() const { return info_; }
  // Loads every kernel of the op for a device, so that its first call is as fast as all others. Throws Error.
  void warmup(Backend& backend, int backend_index, int device) const;
  // Adds the names of the op's kernels that have configs to choose among.
  void add_tuned(std::set<std::string>& kernels) const;

 private:
  const OpInfo& info_;
  const LaunchSite* const* sites_;
  int site_count_;
};

// An op as torch is told of it.
struct OpEntry {
  const char* schema;
  const char* name;                // with the overload: mha, mha.out
  const BoxedFunction* functions;  // by backend
  BoxedFunction negated;           // what refuses tensors that are negated when they are read; nullptr: writes to no argument
};

struct LibraryInfo {
  const char* name_space;
  const OpEntry* entries;
  int entry_count;
  const OpConstructor* const* ops;
  int op_count;
  Backend* const* backends;
  const char* const* dispatch_keys;  // by backend
  int backend_count;
  const char* marker;  // the exported symbol that says which namespace this library defines
};

// Registers all ops, or none: what torch refuses is kept as text, since a library that is being loaded cannot throw.
class Library {
 public:
  explicit Library(const LibraryInfo& info);
  // "" after a successful load.
  const char* load_error() const { return error_.c_str(); }
  // Returns the schema of an op or overload, or nullptr after the last one.
  const char* schema(int index) const {
    return 0 <= index && index < info_.entry_count ? info_.entries[index].schema : nullptr;
  }
  // Returns how many functions, one for each op, overload and backend, torch calls without boxing.
  int unboxed() const { return unboxed_; }
  // Loads the kernels of one op, or of all for nullptr. Throws Error.
  void warmup(const char* op, const char* backend, int device) const;

 private:
  std::string register_all();

  const LibraryInfo& info_;
  int unboxed_ = 0;
  std::string error_;
};

// Runs `body`, turning exceptions into 1 and a text for `last_error()`; returns 0 if none came. For C entry points.
template <class Body>
int guarded(std::string& last_error, const Body& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    return 1;
  }
}

}  // namespace kernelpack
