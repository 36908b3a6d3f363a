// Whether tests run whole matrices instead of samples (make test-full).
#pragma once

namespace zeno::test {

inline constexpr bool kFull = ZENO_FULL_TESTS;

}  // namespace zeno::test
