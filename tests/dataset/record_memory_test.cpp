// A record of N bytes costs a small multiple of N, whatever it is and whatever reads it; and the records that
// all threads are at cost no more than a bounded number of bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/dataset/dataset_folder.h"
#include "zeno/data/dataset/byte_budget.h"

namespace {

std::atomic<size_t> allocated{0}, highest{0};

void note_allocated(size_t bytes) {
  const size_t now = allocated.fetch_add(bytes) + bytes;
  size_t before = highest.load();
  while (before < now && !highest.compare_exchange_weak(before, now)) {
  }
}

void release(void* memory) noexcept {
  if (memory != nullptr) allocated -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

// All memory of this test program, counted.
void* operator new(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  note_allocated(malloc_usable_size(memory));
  return memory;
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }

namespace zeno::data {
namespace {

using nlohmann::ordered_json;
using test::DatasetFolder;

constexpr size_t kMegabyte = size_t(1) << 20;

// English, with capitals, accents and characters beside the Latin ones.
std::string words(size_t bytes) {
  constexpr std::string_view kSentence =
      "The caf\u00e9 on Main Street opens at 7; \u4f60\u597d says a guest. It's where Ann e\u0301crit "
      "'Hello'.\n";
  std::string out;
  while (out.size() + kSentence.size() <= bytes) out += kSentence;
  return out;
}

std::string line(const ordered_json& record) { return record.dump() + "\n"; }
std::string text_line(const std::string& text) { return line({{"text", text}}); }
std::string chat_line(const std::string& words) {
  const size_t half = words.size() / 2;
  return line({{"messages",
                {{{"role", "user"}, {"content", words.substr(0, half)}},
                 {{"role", "assistant"}, {"content", words.substr(half)}}}}});
}
std::string prompt_line(const std::string& words) {
  return line(
      {{"prompt", words.substr(0, words.size() / 2)}, {"completion", words.substr(words.size() / 2)}});
}

// What building a cache from the lines allocates at most at one time.
size_t peak_of(const DatasetFolder& folder, const std::string& lines, int threads) {
  DatasetSpec spec = folder.spec({folder.write("data.jsonl", lines)});
  spec.vocab_size = 300;
  const size_t before = allocated;
  highest = before;
  prepare_dataset(spec, {}, threads);
  std::filesystem::remove_all(folder.caches());
  return highest - before;
}

// Bytes per byte of the record.
double cost_of(const DatasetFolder& folder, const std::string& record, const std::string& small) {
  const size_t fixed = peak_of(folder, small, 1);
  return double(peak_of(folder, record, 1) - fixed) / double(record.size());
}

void expect_cheap(const DatasetFolder& folder) {
  const std::string text = words(6 * kMegabyte);
  EXPECT_LT(cost_of(folder, text_line(text), text_line("a b")), 12);
  EXPECT_LT(cost_of(folder, prompt_line(text), prompt_line("a b")), 16);
  EXPECT_LT(cost_of(folder, chat_line(text), chat_line("a b")), 16);
}

// A tokenizer of words and bytes with the parts given.
std::string tokenizer_json(const ordered_json& normalizer, const ordered_json& pre_tokenizer,
                           const std::string& type) {
  ordered_json model = ordered_json::parse(test::chat_tokenizer_json());
  model["normalizer"] = normalizer;
  model["pre_tokenizer"] = pre_tokenizer;
  ordered_json vocab = ordered_json::object(), list = ordered_json::array();
  const auto add = [&](const std::string& token) {
    vocab[token] = vocab.size();
    list.push_back(ordered_json::array({token, token.starts_with("<") ? -10.0 : -1.0}));
  };
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte));
  for (const auto& token : model["added_tokens"]) add(token["content"].get<std::string>());
  for (const char* word : {"The", "on", "Main", "Street", "opens", "at", "says", "where", "Ann"})
    add(std::string("\u2581") + word);
  model["model"] = {{"type", type}, {"byte_fallback", true}, {"unk_id", 0}, {"unk_token", "<0x00>"}};
  if (type == "BPE") {
    model["model"]["vocab"] = vocab;
    model["model"]["merges"] = ordered_json::array();
  } else {
    model["model"]["vocab"] = list;
  }
  return model.dump();
}

const ordered_json kMetaspace{{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};

TEST(RecordMemory, WithBytes) { expect_cheap(DatasetFolder()); }

TEST(RecordMemory, WithNormalizersAndBpe) {
  const DatasetFolder folder;
  const ordered_json steps{{{"type", "NFKC"}},
                           {{"type", "Lowercase"}},
                           {{"type", "Prepend"}, {"prepend", "\u2581"}},
                           {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}};
  const ordered_json normalizer{{"type", "Sequence"}, {"normalizers", steps}};
  const ordered_json pre{
      {"type", "Split"}, {"pattern", {{"String", "\u2581"}}}, {"behavior", "MergedWithNext"}};
  folder.write("model/tokenizer.json", tokenizer_json(normalizer, pre, "BPE"));
  expect_cheap(folder);
}

TEST(RecordMemory, WithMetaspaceAndUnigram) {
  const DatasetFolder folder;
  folder.write("model/tokenizer.json", tokenizer_json({{"type", "NFD"}}, kMetaspace, "Unigram"));
  expect_cheap(folder);
}

TEST(RecordMemory, OfAllThreadsIsBounded) {
  const DatasetFolder folder;
  std::string lines;
  const std::string record = text_line(words(8 * kMegabyte));
  for (int i = 0; i < 10; ++i) lines += record;
  EXPECT_LT(peak_of(folder, lines, 64), 12 * 64 * kMegabyte);
}

TEST(ByteBudget, HoldsForAllThreadsTogether) {
  ByteBudget budget(100);
  std::atomic<size_t> taken{0}, most{0}, shares{0};
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (size_t j = 0; j < 200; ++j) {
        const size_t bytes = 1 + (i * 31 + j * 17) % 60;
        const ByteBudget::Share share(budget, bytes);
        const size_t now = taken += bytes;
        for (size_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::yield();
        taken -= bytes;
        ++shares;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(shares, 8u * 200);
  EXPECT_LE(most, 100u);
  EXPECT_GT(most, 60u);
}

TEST(ByteBudget, MoreThanThereIsGoesAlone) {
  ByteBudget budget(100);
  std::atomic<int> inside{0}, others{0};
  std::vector<std::jthread> threads;
  for (const size_t bytes : {1000, 10, 1000, 20, 30, 1000}) {
    threads.emplace_back([&, bytes] {
      for (int i = 0; i < 50; ++i) {
        const ByteBudget::Share share(budget, bytes);
        const int before = inside.fetch_add(1);
        if (bytes > 100) others += before;
        std::this_thread::yield();
        if (bytes > 100) others += inside - 1;
        --inside;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(others, 0);
}

}  // namespace
}  // namespace zeno::data
