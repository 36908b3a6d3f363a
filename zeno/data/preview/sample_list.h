// The samples of a run, one by one in the order of the files: what is left of each record after cutting, and
// the parts of those that are split or that windows of a stream divide. No attention crosses them.
//
// Made from the tables that training uses. Immutable; the source must outlive the list.
#pragma once

#include <functional>
#include <optional>

#include "zeno/data/dataset/sequences.h"
#include "zeno/data/source.h"

namespace zeno::data {

class SampleList {
 public:
  SampleList(const TokenSource& source, const PackOptions& options);

  const TokenSource& source() const { return source_; }
  const PackReport& report() const { return packed_.report(); }
  // Is each part of a long record a separate sample, so that nothing is lost?
  bool keeps_all_parts() const { return packed_.targets_continue(); }
  // Until `visit` returns false.
  void for_each(const std::function<bool(const Piece&)>& visit) const;

 private:
  const TokenSource& source_;
  SequenceTable packed_;
  std::optional<SequenceTable> unpacked_;  // where packing changes the order of samples
};

}  // namespace zeno::data
