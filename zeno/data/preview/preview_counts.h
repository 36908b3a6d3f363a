// The numbers of a dataset as it will be trained on: in total, by file and by length. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zeno/data/preview/sample_list.h"

namespace zeno::data {

struct FileCounts {
  std::string path;
  int64_t records = 0;   // in the file; samples are made of them
  int64_t left_out = 0;  // records that became no sample: bad, or with nothing to train on
  int64_t samples = 0;   // as trained: cut, or in parts
  int64_t tokens = 0, trained = 0;
  int64_t cut = 0;         // samples that lost tokens because they were too long
  int64_t cut_tokens = 0;  // those tokens
  int64_t longest = 0;     // tokens of the longest sample before cutting

  double trained_share() const { return tokens > 0 ? double(trained) / double(tokens) : 0; }
};

// Lengths in tokens, before cutting.
struct LengthCounts {
  int64_t median = 0, p90 = 0, p99 = 0, longest = 0;
  std::string longest_origin;      // "chat.jsonl:7"
  std::vector<int64_t> histogram;  // [i]: lengths above 2^(i-1), up to 2^i; ends with the longest
};

struct PreviewCounts {
  FileCounts total;  // without a path
  std::vector<FileCounts> files;
  LengthCounts lengths;
  PackReport packing;
  BuildReport build;  // why records were left out, fields that nothing reads
};

// Goes through all samples once.
PreviewCounts count_samples(const SampleList& list);

// "'id' in 52,010 of 52,010 records": fields that nothing reads, one line each.
std::vector<std::string> unused_lines(const PreviewCounts& counts);
// "the template does not write the tools (12 times)": what the chat template does to the data, one line each.
std::vector<std::string> remark_lines(const PreviewCounts& counts);
// "8 with nothing to train on": why records were left out, one line each.
std::vector<std::string> left_out_lines(const PreviewCounts& counts);

}  // namespace zeno::data
