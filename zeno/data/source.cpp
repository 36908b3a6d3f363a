#include "zeno/data/source.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/quantity.h"
#include "zeno/data/dataset/identity.h"
#include "zeno/data/dataset/input_files.h"

namespace zeno::data {
namespace {

// The pages of a mapped file may have to come from its disk: calls `use(block, begin)` for one block after
// the other, each an operation of its own.
template <class T, class Use>
void read_blocks(std::span<const T> ids, const Path& path, const Use& use) {
  constexpr size_t kBlock = size_t(1) << 22;
  for (size_t begin = 0; begin < ids.size(); begin += kBlock) {
    const DiskOperation waiting("reading", path);
    use(ids.subspan(begin, std::min(kBlock, ids.size() - begin)), begin);
  }
}

// The largest id first, in a loop that vectorises; only a block that fails is searched for the position.
template <class T>
void check_vocabulary(std::span<const T> ids, size_t begin, int64_t vocab_size, const Path& path) {
  uint32_t largest = 0;
  for (const T id : ids) largest = std::max(largest, uint32_t(id));
  if (int64_t(largest) < vocab_size) return;
  const auto bad = std::ranges::find_if(ids, [&](T id) { return int64_t(uint32_t(id)) >= vocab_size; });
  fail(ErrorKind::data,
       "[data] {}: token at position {}: got id {}, expected below the model's vocabulary size {}; tokenise "
       "the data with the tokenizer of this model",
       path.string(), begin + size_t(bad - ids.begin()), uint32_t(*bad), vocab_size);
}

template <class Values>
uint64_t hash_of(const Values& values) {
  return XXH3_64bits(values.data(), values.size() * sizeof(values[0]));
}

// What to tell about a dataset without a token.
std::string why_empty(const BuildReport& report) {
  if (report.nothing_to_learn > 0) {
    return fmt::format(
        "{} records have nothing to train on, expected an assistant turn, a completion or a text; check the "
        "data, --data-format and --loss-on",
        format_count(report.nothing_to_learn));
  }
  if (!report.bad.empty()) {
    return fmt::format("every record was skipped, for example for this reason: {}; correct the data",
                       report.bad.begin()->first);
  }
  return "there are no records in it; check the path";
}

}  // namespace

TokenSource TokenSource::open(const DatasetSpec& spec) {
  TokenSource source;
  const InputFiles files = find_input_files(spec);
  std::string reason = "the files are empty; check the path";
  if (!files.to_build.empty()) {
    const DatasetIdentity identity = identify_dataset(spec, files);
    require(is_complete_cache(identity.folder), ErrorKind::data,
            "[data] {}: was not prepared, or has changed since; start again",
            files.to_build[0].path.string());
    CachedSamples cache(identity.folder, identity.text);
    reason = why_empty(cache.report());
    source.add_cache(std::move(cache));
  }
  for (const Path& path : files.token_files) source.add_token_file(path, spec.vocab_size);
  source.finish();
  require(source.tokens_ > 0, ErrorKind::data, "[data] {}{}: no samples: {}", spec.paths[0].string(),
          spec.paths.size() > 1 ? ", …" : "", reason);
  return source;
}

TokenSource TokenSource::generated(const GeneratedData& options) {
  TokenSource source;
  Sample all{.ids = generate_tokens(options), .learned = {}};
  std::vector<int64_t> starts;
  for (int64_t at = 0; at < options.tokens; at += options.document_tokens) starts.push_back(at);
  source.add_memory(std::move(all), starts);
  source.finish();
  return source;
}

TokenSource TokenSource::of(const std::vector<Sample>& samples) {
  TokenSource source;
  Sample all;
  std::vector<int64_t> starts;
  for (const Sample& sample : samples) {
    starts.push_back(int64_t(all.ids.size()));
    all.ids.insert(all.ids.end(), sample.ids.begin(), sample.ids.end());
    all.learned.insert(all.learned.end(), sample.learned.begin(), sample.learned.end());
  }
  source.add_memory(std::move(all), starts);
  source.whole_texts_ = false;
  source.finish();
  return source;
}

void TokenSource::add_cache(CachedSamples cache) {
  const int64_t count = cache.tokens();
  if (count == 0) return;
  whole_texts_ = whole_texts_ && cache.report().whole_texts;
  parts_.emplace_back(tokens_, count, 0, std::move(cache));
  tokens_ += count;
}

void TokenSource::add_memory(Sample tokens, std::span<const int64_t> starts) {
  own_starts_.assign(starts.begin(), starts.end());
  const auto count = int64_t(tokens.ids.size());
  parts_.emplace_back(tokens_, count, 0, std::move(tokens));
  tokens_ += count;
}

void TokenSource::add_token_file(const Path& path, int64_t vocab_size) {
  TokenFile file(path);
  file.visit([&](auto ids) {
    read_blocks(ids, path,
                [&](auto block, size_t begin) { check_vocabulary(block, begin, vocab_size, path); });
  });
  if (file.count() == 0) return log_warning("[data] {} is empty and is ignored", path.string());
  if (own_starts_.empty() && !parts_.empty()) {
    const auto before = std::get<CachedSamples>(parts_[0].tokens).document_starts();
    own_starts_.assign(before.begin(), before.end() - 1);
  }
  const auto first_document = int64_t(own_starts_.size());
  own_starts_.push_back(tokens_);
  if (file.eos()) {
    file.visit([&](auto ids) {
      const auto eos = typename decltype(ids)::value_type(*file.eos());
      read_blocks(ids.first(ids.size() - 1), path, [&](auto block, size_t begin) {
        for (size_t i = 0; i < block.size(); ++i) {
          if (block[i] == eos) own_starts_.push_back(tokens_ + int64_t(begin + i) + 1);
        }
      });
    });
  }
  const int64_t count = file.count();
  parts_.emplace_back(tokens_, count, first_document, std::move(file));
  tokens_ += count;
}

void TokenSource::finish() {
  if (own_starts_.empty() && !parts_.empty()) {
    starts_ = std::get<CachedSamples>(parts_[0].tokens).document_starts();
  } else {
    own_starts_.push_back(tokens_);
    starts_ = own_starts_;
  }
}

uint64_t TokenSource::contents() const {
  std::string text = fmt::format("{:016x}", hash_of(starts_));
  for (const Part& part : parts_) {
    if (const auto* cache = std::get_if<CachedSamples>(&part.tokens)) text += cache->checksums();
    if (const auto* sample = std::get_if<Sample>(&part.tokens))
      text += fmt::format("{:016x}{:016x}", hash_of(sample->ids), hash_of(sample->learned));
  }
  return hash_of(text);
}

// f(part, offset in the part, offset in the output, count)
template <class F>
void TokenSource::for_each_part(int64_t begin, size_t count, F&& f) const {
  ensure(begin >= 0 && begin + int64_t(count) <= tokens_, "[data] got range {}+{}, expected within {} tokens",
         begin, count, tokens_);
  auto part = std::ranges::upper_bound(parts_, begin, {}, &Part::begin) - 1;
  for (size_t done = 0; done < count; ++part) {
    const int64_t offset = begin + int64_t(done) - part->begin;
    const size_t piece = std::min(count - done, size_t(part->count - offset));
    f(*part, offset, done, piece);
    done += piece;
  }
}

void TokenSource::copy(int64_t begin, std::span<int32_t> out) const {
  for_each_part(begin, out.size(), [&](const Part& part, int64_t offset, size_t at, size_t count) {
    const auto piece = out.subspan(at, count);
    if (const auto* memory = std::get_if<Sample>(&part.tokens)) {
      std::ranges::copy_n(memory->ids.begin() + offset, int64_t(count), piece.begin());
    } else if (const auto* file = std::get_if<TokenFile>(&part.tokens)) {
      file->copy(offset, piece);
    } else {
      std::get<CachedSamples>(part.tokens).copy(offset, piece);
    }
  });
}

void TokenSource::copy_learned(int64_t begin, std::span<uint8_t> out) const {
  for_each_part(begin, out.size(), [&](const Part& part, int64_t offset, size_t at, size_t count) {
    const auto piece = out.subspan(at, count);
    const auto* memory = std::get_if<Sample>(&part.tokens);
    if (memory != nullptr && !memory->learned.empty()) {
      std::ranges::copy_n(memory->learned.begin() + offset, int64_t(count), piece.begin());
    } else if (const auto* cache = std::get_if<CachedSamples>(&part.tokens)) {
      cache->copy_learned(offset, piece);
    } else {
      std::ranges::fill(piece, uint8_t(1));
    }
  });
}

std::string TokenSource::origin(int64_t document) const {
  const Part& part = *(std::ranges::upper_bound(parts_, document, {}, &Part::first_document) - 1);
  const int64_t index = document - part.first_document;
  if (const auto* cache = std::get_if<CachedSamples>(&part.tokens)) return cache->origin(index);
  if (const auto* file = std::get_if<TokenFile>(&part.tokens)) {
    return fmt::format("{}, document {}", file->path().string(), index);
  }
  return fmt::format("document {}", index);
}

std::vector<CachedFile> TokenSource::files() const {
  std::vector<CachedFile> out;
  for (const Part& part : parts_) {
    if (const auto* cache = std::get_if<CachedSamples>(&part.tokens)) out = cache->files();
    if (const auto* file = std::get_if<TokenFile>(&part.tokens))
      out.push_back({file->path().string(), part.first_document});
  }
  return out;
}

const BuildReport* TokenSource::report() const {
  // The cache comes before token files.
  const auto* cache = parts_.empty() ? nullptr : std::get_if<CachedSamples>(&parts_[0].tokens);
  return cache == nullptr ? nullptr : &cache->report();
}

size_t TokenSource::host_bytes() const {
  size_t bytes = own_starts_.capacity() * sizeof(int64_t);
  for (const Part& part : parts_) {
    if (const auto* memory = std::get_if<Sample>(&part.tokens)) {
      bytes += memory->ids.capacity() * sizeof(int32_t) + memory->learned.capacity();
    }
  }
  return bytes;
}

}  // namespace zeno::data
