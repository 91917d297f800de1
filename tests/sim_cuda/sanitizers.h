// AddressSanitizer and ThreadSanitizer have to be told when a host thread changes to another stack.
// Here is what they offer for that, and whether this build has them. ThreadSanitizer finds missing
// barriers whatever the order, and names both lines; it remembers what some 250 threads did, so it
// misses races in blocks of 256 threads and more.
#pragma once

#include <cstddef>

#ifdef __has_feature  // clang; GCC defines the macros itself
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

namespace sim {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kAsan = true;
#else
inline constexpr bool kAsan = false;
#endif
#ifdef __SANITIZE_THREAD__
inline constexpr bool kTsan = true;
#else
inline constexpr bool kTsan = false;
#endif

}  // namespace sim

// For functions that CUDA threads share with the engine, or that run between two stacks.
#define SIM_NO_TSAN __attribute__((no_sanitize("thread")))

// Called under `if constexpr` alone: without the sanitizer nobody defines them.
extern "C" {
void __sanitizer_start_switch_fiber(void** frames, const void* stack, std::size_t bytes);
void __sanitizer_finish_switch_fiber(void* frames, const void** old_stack, std::size_t* old_bytes);
void __asan_poison_memory_region(const volatile void* start, std::size_t bytes);
void __asan_unpoison_memory_region(const volatile void* start, std::size_t bytes);
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* token);
void __tsan_release(void* token);
}
