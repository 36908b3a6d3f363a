#include "zeno/data/dataset/prepare.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/log.h"
#include "zeno/base/newer_version.h"
#include "zeno/base/quantity.h"
#include "zeno/base/utf8.h"
#include "zeno/base/workers.h"
#include "zeno/data/dataset/byte_budget.h"
#include "zeno/data/dataset/cache.h"
#include "zeno/data/dataset/encoder.h"
#include "zeno/data/dataset/identity.h"
#include "zeno/data/dataset/input_files.h"
#include "zeno/data/dataset/record_reader.h"

namespace zeno::data {
namespace {

// One record on its way from a file to the cache.
struct Item {
  RawRecord raw;
  size_t file = 0;
  DataFormat format = DataFormat::automatic;
  std::vector<Sample> samples;
  std::vector<std::string> unused;   // unused fields
  std::vector<std::string> remarks;  // of the encoder
  std::string bad;                   // the reason, when the record cannot be used
};

class Builder {
 public:
  Builder(const DatasetSpec& spec, const InputFiles& files, const Path& folder, int threads)
      : spec_(spec),
        files_(files.to_build),
        encoder_(spec),
        workers_(threads),
        batch_bytes_(std::min(size_t(threads) * kBytesPerThread, kBatchBytes)),
        writer_(folder, spec.vocab_size) {
    for (const InputFile& file : files_) {
      state_.bytes_total += file.bytes;
      report_.files.push_back({.path = file.path.string()});
    }
  }

  void run(const BuildProgress& progress) {
    std::vector<RawRecord> records;
    for (size_t file = 0; file < files_.size() && !full(); ++file) {
      const std::unique_ptr<RecordReader> reader = open_records(files_[file]);
      DataFormat format = spec_.format;
      const uint64_t before = state_.bytes_read;
      for (reader->next(records); !records.empty() && !full(); reader->next(records)) {
        for (RawRecord& record : records) add(std::move(record), file, format);
        state_.bytes_read = before + reader->bytes_read();
        if (batched_ >= batch_bytes_) write_batch(progress);
      }
      state_.bytes_read = before + files_[file].bytes;
    }
    write_batch(progress);
  }

  const BuildReport& commit(const std::string& identity) {
    report_.samples = writer_.documents();
    report_.tokens = writer_.tokens();
    writer_.commit(identity, report_);
    return report_;
  }

 private:
  static constexpr size_t kBytesPerThread = size_t(2) << 20;
  static constexpr size_t kBatchBytes = size_t(64) << 20;
  // Of the records that all threads are at: each of their bytes costs up to 12.
  static constexpr size_t kRecordBytes = size_t(32) << 20;
  static constexpr size_t kMaxReasons = 20, kMaxUnused = 100;

  bool full() const { return spec_.max_samples > 0 && writer_.documents() >= spec_.max_samples; }

  void add(RawRecord&& raw, size_t file, DataFormat& format) {
    batched_ += raw.text.size() + sizeof(Item);
    Item& item = batch_.emplace_back();
    item.raw = std::move(raw);
    item.file = file;
    item.bad = item.raw.error;
    if (files_[file].kind == FileKind::plain_text || !item.bad.empty()) return;
    if (format == DataFormat::automatic) {
      try {
        Json record = parse_json(item.raw.text);
        format = detect_format(Fields(record, spec_.columns));
      } catch (const Error& error) {
        item.bad = error.what();
        return;
      }
    }
    item.format = format;
  }

  void encode(Item& item) try {
    if (!item.bad.empty()) return;
    const ByteBudget::Share share(budget_, item.raw.text.size());
    if (files_[item.file].kind == FileKind::plain_text) {
      item.samples.push_back(encoder_.encode_text(item.raw.text, item.raw.first, item.raw.last));
      return;
    }
    for (Record& record : records_of(item)) {
      item.samples.push_back(encoder_.encode(std::move(record), item.remarks));
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    item.bad = error.what();
  }

  // A record may be large: each form of it goes as soon as the next one is there.
  std::vector<Record> records_of(Item& item) const {
    Json json = parse_json(std::exchange(item.raw.text, {}));
    Fields fields(json, spec_.columns);
    std::vector<Record> records = read_record(fields, item.format);
    item.unused = fields.unused();
    return records;
  }

  void write_batch(const BuildProgress& progress) {
    workers_.for_each(int64_t(batch_.size()), [&](int64_t i, int) { encode(batch_[size_t(i)]); });
    for (const Item& item : batch_) {
      if (full()) break;
      write(item);
    }
    batch_.clear();
    batched_ = 0;
    state_.samples = writer_.documents();
    state_.tokens = writer_.tokens();
    if (progress) progress(state_);
  }

  void write(const Item& item) {
    if (!item.bad.empty()) return count_bad(item);
    for (const std::string& remark : item.remarks) count_in(report_.remarks, remark);
    const bool whole = files_[item.file].kind == FileKind::plain_text;
    if (!whole) count_record(item);
    bool dropped = true;
    for (size_t i = 0; i < item.samples.size() && !full(); ++i) {
      // The pieces of a text file are one document; there is always something to learn in it.
      if (!whole && !has_target(item.samples[i])) continue;
      write_sample(item, item.samples[i], whole);
      dropped = false;
    }
    report_.nothing_to_learn += dropped;
    report_.files[item.file].dropped += dropped;
  }

  void write_sample(const Item& item, const Sample& sample, bool whole) {
    const bool new_file = std::exchange(written_file_, item.file) != item.file;
    if (new_file) writer_.begin_file(files_[item.file].path.string());
    FileReport& file = report_.files[item.file];
    // The first piece of a text may have been skipped as bad.
    if (item.raw.first || new_file) {
      writer_.begin_document(item.raw.line);
      ++file.samples;
    }
    if (!whole) tell_layout(item);
    writer_.append(sample);
    const int64_t learned = std::ranges::count(sample.learned, uint8_t(1));
    file.tokens += int64_t(sample.ids.size());
    file.learned += learned;
    report_.learned += learned;
    report_.whole_texts = report_.whole_texts && whole;
  }

  void count_record(const Item& item) {
    ++report_.records;
    ++report_.files[item.file].records;
    for (const std::string& name : item.unused) count_in(report_.unused, name);
  }

  // Names come from the data: there may be any number of them.
  static void count_in(std::map<std::string, int64_t>& counts, const std::string& name) {
    if (counts.size() < kMaxUnused || counts.contains(name)) ++counts[name];
  }

  void tell_layout(const Item& item) {
    const std::string layout = encoder_.layout_of(item.format);
    if (report_.layout.find(layout) != std::string::npos) return;
    report_.layout += (report_.layout.empty() ? "" : "; ") + layout;
  }

  void count_bad(const Item& item) {
    const std::string& file = files_[item.file].path.string();
    // A reason with a ';' has said what to do.
    const char* advice =
        item.bad.find("; ") == std::string::npos ? "; correct the line or give" : "; to skip it give";
    require(spec_.skip_bad_lines, ErrorKind::data, "[data] {}:{}: {}{} --skip-bad-lines", file, item.raw.line,
            item.bad, advice);
    ++report_.files[item.file].bad;
    const bool room = report_.bad.size() < kMaxReasons || report_.bad.contains(item.bad);
    const int64_t count = ++report_.bad[room ? item.bad : "other reasons"];
    if (count == 1) log_warning("[data] {}:{}: {}: skipped", file, item.raw.line, item.bad);
  }

  const DatasetSpec& spec_;
  const std::vector<InputFile>& files_;
  SampleEncoder encoder_;
  Workers workers_;
  size_t batch_bytes_;
  ByteBudget budget_{kRecordBytes};
  CacheWriter writer_;
  std::vector<Item> batch_;
  size_t batched_ = 0;  // bytes in the batch
  size_t written_file_ = size_t(-1);
  BuildReport report_;
  BuildState state_;
};

void log_report(const BuildReport& report, const Path& folder) {
  std::string text = fmt::format("{} samples, {} tokens of which {} are trained", report.samples,
                                 report.tokens, report.learned);
  if (!report.layout.empty()) text += "; " + report.layout;
  if (report.nothing_to_learn > 0) {
    text += fmt::format("; {} samples left out: they have nothing to train on", report.nothing_to_learn);
  }
  log_info("[dataset] {} ({})", text, folder.string());
  for (const auto& [remark, count] : report.remarks) log_warning("[dataset] {} ({} times)", remark, count);
  for (const auto& [reason, count] : report.bad) {
    log_warning("[dataset] {} bad lines skipped: {}", count, reason);
  }
  for (const auto& [field, count] : report.unused) {
    log_info("[dataset] '{}' is not used ({} of {} records)", shortened(field, 60), format_count(count),
             format_count(report.records));
  }
}

// The report of a cache that can be used; one that is damaged is as good as none, but not a newer Zeno's.
std::optional<BuildReport> usable(const DatasetIdentity& identity, bool warn) {
  if (!is_complete_cache(identity.folder)) return std::nullopt;
  try {
    const CachedSamples cache(identity.folder, identity.text);
    cache.verify_small();
    return cache.report();
  } catch (const NewerVersion&) {
    throw;
  } catch (const Error& error) {
    if (warn) log_warning("{}: rebuilding it", error.what());
    return std::nullopt;
  }
}

void clear_after_failure(CacheLock& lock) {
  try {
    lock.clear(false);
  } catch (const Error& error) {
    log_warning("{}", error.what());  // the reason of the failure counts more
  }
}

}  // namespace

bool prepare_dataset(const DatasetSpec& spec, const BuildProgress& progress, int threads) {
  const InputFiles files = find_input_files(spec);
  for (const std::string& note : files.notes) log_warning("[data] {}", note);
  if (files.to_build.empty()) return false;
  const DatasetIdentity identity = identify_dataset(spec, files);
  if (const auto report = usable(identity, true)) {
    log_report(*report, identity.folder);
    return false;
  }
  CacheLock lock(identity.folder);
  if (const auto report = usable(identity, false)) {  // another process has built it meanwhile
    log_report(*report, identity.folder);
    return false;
  }
  try {
    lock.clear(true);
    remove_unfinished_caches(identity.folder.parent_path());
    if (threads <= 0) threads = available_cores();
    Builder builder(spec, files, identity.folder, threads);
    builder.run(progress);
    log_report(builder.commit(identity.text), identity.folder);
  } catch (...) {
    clear_after_failure(lock);
    throw;
  }
  return true;
}

}  // namespace zeno::data
