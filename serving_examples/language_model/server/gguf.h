// Reads a GGUF file, version 2 or 3, which is mapped into memory: its fields, and where its tensors lie. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lm {

// A text of a file for an error: quoted, short, and without what a terminal would act on.
std::string shown(std::string_view text);

struct GgufTensor {
  std::vector<int64_t> shape;  // rows first, as torch has it
  int format;                  // ggml's number of the type: 0 float32, 1 float16, 3 Q4_1, 8 Q8_0, ...
  std::string_view data;       // in the file; none where the format's sizes are not known
};

class Gguf {
 public:
  using Field = std::variant<int64_t, double, bool, std::string_view, std::vector<int64_t>, std::vector<double>,
                             std::vector<std::string_view>>;

  // Maps a file, which must not be cut while this object lives. Throws std::runtime_error, which names the file and the place,
  // for a file that is no GGUF, is cut short or contradicts itself.
  explicit Gguf(const std::string& path);
  // The same of bytes in memory, which must outlive this object.
  explicit Gguf(std::string_view bytes);

  // A field's value; arrays of true and false are integers. The errors name the field: it is missing, or of another type.
  int64_t integer(const std::string& name) const { return value<int64_t>(name, "an integer"); }
  double number(const std::string& name) const {  // of an integer field, too
    const auto found = fields_.find(name);
    const bool is_integer = found != fields_.end() && std::holds_alternative<int64_t>(found->second);
    return is_integer ? static_cast<double>(integer(name)) : value<double>(name, "a number");
  }
  bool flag(const std::string& name) const { return value<bool>(name, "true or false"); }
  std::string_view text(const std::string& name) const { return value<std::string_view>(name, "a text"); }
  const std::vector<std::string_view>& texts(const std::string& name) const {
    return value<std::vector<std::string_view>>(name, "an array of texts");
  }
  const std::vector<int64_t>& integers(const std::string& name) const {
    return value<std::vector<int64_t>>(name, "an array of integers");
  }
  bool has(const std::string& name) const { return fields_.contains(name); }

  // A tensor. Throws where it is missing, or its format's sizes are not known.
  const GgufTensor& tensor(const std::string& name) const;
  const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }

  // Throws std::runtime_error: the file's name, then what is wrong with it.
  [[noreturn]] void refuse(const std::string& what) const { throw std::runtime_error(path_ + ": " + what); }

 private:
  void read(std::string_view bytes);
  template <class T>
  const T& value(const std::string& name, const char* kind) const {
    const auto found = fields_.find(name);
    if (found == fields_.end()) refuse("field " + shown(name) + " is missing");
    if (const T* value = std::get_if<T>(&found->second)) return *value;
    refuse("field " + shown(name) + " is not " + kind);
  }

  std::string path_ = "the GGUF file";
  std::shared_ptr<const void> mapping_;
  std::map<std::string, Field> fields_;
  std::map<std::string, GgufTensor> tensors_;
};

}  // namespace lm
