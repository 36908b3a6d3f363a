// For tests of memory and of shares of time: a sanitizer has memory of its own, and slows some work more than
// other.
#pragma once

namespace zeno::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace zeno::test
