// An open file's descriptor, closed when it goes. Move-only; not thread-safe.
#ifndef GAVEL_RUNTIME_FILES_DESCRIPTOR_H_
#define GAVEL_RUNTIME_FILES_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace gavel {

class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(other.Take()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return descriptor_; }  // below 0: not open
  void Close() {
    if (descriptor_ >= 0) close(Take());
  }
  // The caller closes it.
  int Take() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_FILES_DESCRIPTOR_H_
