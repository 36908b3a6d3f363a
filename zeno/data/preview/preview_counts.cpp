#include "zeno/data/preview/preview_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "zeno/base/quantity.h"

namespace zeno::data {
namespace {

LengthCounts lengths_of(const TokenSource& source) {
  const auto starts = source.document_starts();
  std::vector<int64_t> lengths(starts.size() - 1);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = starts[i + 1] - starts[i];
  LengthCounts out;
  if (lengths.empty()) return out;
  const auto longest = std::ranges::max_element(lengths) - lengths.begin();
  out.longest_origin = source.origin(longest);
  std::ranges::sort(lengths);
  // The smallest length that this percentage of the samples does not exceed.
  const auto at = [&](size_t percent) { return lengths[(lengths.size() * percent + 99) / 100 - 1]; };
  out.median = at(50);
  out.p90 = at(90);
  out.p99 = at(99);
  out.longest = lengths.back();
  for (const int64_t length : lengths) {
    const auto bin = size_t(length > 1 ? std::bit_width(uint64_t(length - 1)) : 0);
    out.histogram.resize(std::max(out.histogram.size(), bin + 1));
    ++out.histogram[bin];
  }
  return out;
}

// A row for each file: those the cache was built from, then token files.
std::vector<FileCounts> file_rows(const TokenSource& source) {
  std::vector<FileCounts> rows;
  if (const BuildReport* build = source.report()) {
    for (const FileReport& file : build->files) {
      FileCounts& row = rows.emplace_back();
      row.path = file.path;
      row.records = file.records + file.bad;
      row.left_out = file.dropped + file.bad;
    }
  }
  return rows;
}

// Which row each document belongs to; documents come in ascending order.
class RowOfDocument {
 public:
  RowOfDocument(const TokenSource& source, std::vector<FileCounts>& rows)
      : files_(source.files()), rows_(rows) {
    for (const CachedFile& file : files_) {
      const auto known = std::ranges::find(rows_, file.path, &FileCounts::path);
      row_of_file_.push_back(size_t(known - rows_.begin()));
      if (known == rows_.end()) rows_.emplace_back().path = file.path;
    }
    if (rows_.empty()) rows_.emplace_back();  // from memory
  }
  FileCounts& operator()(int64_t document) {
    while (file_ + 1 < files_.size() && files_[file_ + 1].first_document <= document) ++file_;
    return rows_[files_.empty() ? 0 : row_of_file_[file_]];
  }

 private:
  std::vector<CachedFile> files_;
  std::vector<FileCounts>& rows_;
  std::vector<size_t> row_of_file_;
  size_t file_ = 0;
};

void count_longest(const TokenSource& source, std::vector<FileCounts>& rows) {
  const auto starts = source.document_starts();
  RowOfDocument row_of(source, rows);
  for (int64_t d = 0; d < source.documents(); ++d) {
    FileCounts& row = row_of(d);
    row.longest = std::max(row.longest, starts[size_t(d) + 1] - starts[size_t(d)]);
  }
}

FileCounts sum_of(const std::vector<FileCounts>& rows) {
  FileCounts sum;
  for (const FileCounts& row : rows) {
    sum.records += row.records;
    sum.left_out += row.left_out;
    sum.samples += row.samples;
    sum.tokens += row.tokens;
    sum.trained += row.trained;
    sum.cut += row.cut;
    sum.cut_tokens += row.cut_tokens;
    sum.longest = std::max(sum.longest, row.longest);
  }
  return sum;
}

}  // namespace

PreviewCounts count_samples(const SampleList& list) {
  const TokenSource& source = list.source();
  const auto starts = source.document_starts();
  PreviewCounts out{.files = file_rows(source), .packing = list.report()};
  if (const BuildReport* build = source.report()) out.build = *build;
  count_longest(source, out.files);
  RowOfDocument row_of(source, out.files);
  std::vector<uint8_t> marks;
  list.for_each([&](const Piece& piece) {
    FileCounts& row = row_of(piece.document);
    marks.resize(size_t(piece.length));
    source.copy_learned(piece.begin, marks);
    const int64_t whole = starts[size_t(piece.document) + 1] - starts[size_t(piece.document)];
    ++row.samples;
    row.tokens += piece.length;
    row.trained += std::ranges::count(marks, uint8_t(1));
    if (!list.keeps_all_parts() && piece.length < whole) {
      ++row.cut;
      row.cut_tokens += whole - piece.length;
    }
    return true;
  });
  out.total = sum_of(out.files);
  out.lengths = lengths_of(source);
  return out;
}

std::vector<std::string> unused_lines(const PreviewCounts& counts) {
  std::vector<std::string> lines;
  for (const auto& [field, count] : counts.build.unused)
    lines.push_back(fmt::format("'{}' in {} of {} records", field, format_count(count),
                                format_count(counts.build.records)));
  return lines;
}

std::vector<std::string> remark_lines(const PreviewCounts& counts) {
  std::vector<std::string> lines;
  for (const auto& [remark, count] : counts.build.remarks)
    lines.push_back(fmt::format("{} ({} times)", remark, format_count(count)));
  return lines;
}

std::vector<std::string> left_out_lines(const PreviewCounts& counts) {
  std::vector<std::string> lines;
  const PackReport& packing = counts.packing;
  const auto add = [&](int64_t count, std::string_view what) {
    if (count > 0) lines.push_back(fmt::format("{} {}", format_count(count), what));
  };
  for (const auto& [reason, count] : counts.build.bad) add(count, "bad: " + reason);
  add(counts.build.nothing_to_learn, "with nothing to train on");
  add(packing.dropped, fmt::format("longer than {} tokens", format_count(packing.seq_len)));
  add(packing.nothing_to_learn, "with nothing to train on after cutting");
  return lines;
}

}  // namespace zeno::data
