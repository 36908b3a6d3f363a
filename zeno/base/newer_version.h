// What a newer Zeno has written: this one cannot read it, and must neither take something older instead nor
// replace or remove it. The run ends.
#pragma once

#include <cstdint>
#include <string_view>

#include "zeno/base/error.h"

namespace zeno {

class NewerVersion : public Error {
 public:
  // `where` is "[checkpoint] PATH", `what` "checkpoint", `advice` what else helps besides the newer Zeno.
  NewerVersion(std::string_view where, std::string_view what, int64_t got, int64_t known,
               std::string_view advice)
      : Error(ErrorKind::data,
              fmt::format(
                  "{}: {} version {} was written by a newer Zeno; this one reads up to {}; use that Zeno{}{}",
                  where, what, got, known, advice.empty() ? "" : ", or ", advice)) {}
};

}  // namespace zeno
