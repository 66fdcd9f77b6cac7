// Runs work in several threads.
#pragma once

#include <exception>
#include <thread>
#include <vector>

namespace elasticdl::counting {

// Runs `work` in each of `count` threads and rethrows the first exception.
template <typename Work>
void run_in_threads(size_t count, Work&& work) {
  std::vector<std::exception_ptr> failures(count);
  const auto guarded = [&](size_t thread) {
    try {
      work(thread);
    } catch (...) {
      failures[thread] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (size_t thread = 1; thread < count; ++thread) threads.emplace_back(guarded, thread);
  guarded(0);
  for (auto& thread : threads) thread.join();
  for (auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace elasticdl::counting
