// A temporary file without a name: sorted runs are written to it, and read back in parallel to merge them.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace elasticdl::counting {

struct Run {
  uint64_t begin, end;  // bytes of the file
};

// Any thread may write and read. The kernel removes the file with the last descriptor, even if the process is killed.
class Spill {
 public:
  explicit Spill(std::string directory) : directory_(std::move(directory)) {}
  Spill(const Spill&) = delete;
  Spill& operator=(const Spill&) = delete;
  ~Spill() {
    if (file_ >= 0) close(file_);
  }

  // Call it before any thread writes.
  void open() {
    if (file_ >= 0) return;
    std::string path = directory_ + "/elasticdl-counted-XXXXXX";
    file_ = mkostemp(path.data(), O_CLOEXEC);
    if (file_ < 0) fail();
    unlink(path.c_str());
  }

  Run reserve(uint64_t bytes) {
    const uint64_t begin = end_.fetch_add(bytes);
    return {begin, begin + bytes};
  }
  void write(const void* data, size_t bytes, uint64_t at) {
    for (auto* next = static_cast<const char*>(data); bytes > 0;) {
      const ssize_t written = pwrite(file_, next, bytes, static_cast<off_t>(at));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail();
      next += written, at += written, bytes -= written;
    }
  }
  void read(void* data, size_t bytes, uint64_t at) const {
    for (auto* next = static_cast<char*>(data); bytes > 0;) {
      const ssize_t count = pread(file_, next, bytes, static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail();
      next += count, at += count, bytes -= count;
    }
  }
  uint64_t bytes() const { return end_.load(); }

 private:
  [[noreturn]] void fail() const {
    throw std::runtime_error("temporary file in " + directory_ + ": " + strerror(errno));
  }

  std::string directory_;
  int file_ = -1;
  std::atomic<uint64_t> end_{0};
};

// Writes a run of known size in pieces.
class RunWriter {
 public:
  RunWriter(Spill& spill, uint64_t bytes) : spill_(spill), run_(spill.reserve(bytes)), at_(run_.begin) {
    buffer_.reserve(kBytes);
  }
  void put(const void* data, size_t bytes) {
    if (buffer_.size() + bytes > kBytes) flush();
    const auto* from = static_cast<const char*>(data);
    buffer_.insert(buffer_.end(), from, from + bytes);
  }
  Run finish() {
    flush();
    return run_;
  }

 private:
  static constexpr size_t kBytes = size_t{256} << 10;
  void flush() {
    spill_.write(buffer_.data(), buffer_.size(), at_);
    at_ += buffer_.size();
    buffer_.clear();
  }
  Spill& spill_;
  Run run_;
  uint64_t at_;
  std::vector<char> buffer_;
};

// Reads a run from its beginning, in pieces.
class RunReader {
 public:
  RunReader(const Spill& spill, Run run, size_t buffer_bytes) : spill_(&spill), left_(run), buffer_bytes_(buffer_bytes) {}

  // The next `bytes`, valid until the next call; null at the end.
  const char* take(size_t bytes) {
    if (filled_ - next_ < bytes && !fill(bytes)) return nullptr;
    const char* piece = buffer_.data() + next_;
    next_ += bytes;
    return piece;
  }

 private:
  bool fill(size_t bytes) {
    const size_t kept = filled_ - next_;
    if (kept == 0 && left_.begin == left_.end) return false;
    const size_t capacity = std::max(buffer_bytes_, bytes);
    if (buffer_.size() < capacity) buffer_.resize(capacity);
    memmove(buffer_.data(), buffer_.data() + next_, kept);
    const size_t more = std::min<uint64_t>(capacity - kept, left_.end - left_.begin);
    spill_->read(buffer_.data() + kept, more, left_.begin);
    left_.begin += more;
    next_ = 0, filled_ = kept + more;
    if (filled_ < bytes) throw std::runtime_error("temporary file: a run ends within a value");
    return true;
  }

  const Spill* spill_;
  Run left_;
  size_t buffer_bytes_;
  std::vector<char> buffer_;
  size_t next_ = 0, filled_ = 0;
};

// The size of each reader's buffer when this many runs are merged.
inline size_t buffer_bytes(size_t runs) { return std::max<size_t>(4096, (size_t{4} << 20) / (runs + 1)); }

}  // namespace elasticdl::counting
