// The flags that describe an architecture, for commands that need no folder of a model.
#pragma once

#include <string>

#include "zeno/model/init.h"

namespace CLI {
class App;
}

namespace zeno::cli {

class ArchFlags {
 public:
  void add_to(CLI::App& app);
  // What was given, defaults for the rest. Throws Error(usage) for a name that is none.
  model::InitOptions options() const;
  // The first flag that was given, and the first of those that a model cannot do without that was not; empty:
  // none. To ask after parsing.
  std::string first_given() const;
  std::string first_missing() const;
  bool given(const char* flag) const;

 private:
  CLI::App* app_ = nullptr;
  model::InitOptions options_;
  std::string arch_ = "llama";
  bool tied_ = false, untied_ = false;
};

}  // namespace zeno::cli
