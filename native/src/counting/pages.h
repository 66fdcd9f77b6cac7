// Memory straight from the kernel: zero at first, and given back the moment it is let go.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace elasticdl::counting {

// An array of plain values. malloc would keep what is freed, and the peak of memory would not be what is counted here.
template <typename T>
class Pages {
 public:
  Pages() = default;
  explicit Pages(size_t size) : size_(size) {
    if (size == 0) return;
    void* found = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(found);
  }
  Pages(Pages&& other) noexcept { swap(other); }
  Pages& operator=(Pages&& other) noexcept {
    Pages gone(std::move(other));
    swap(gone);
    return *this;
  }
  ~Pages() {
    if (data_) munmap(data_, bytes());
  }

  void swap(Pages& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t place) { return data_[place]; }
  const T& operator[](size_t place) const { return data_[place]; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace elasticdl::counting
