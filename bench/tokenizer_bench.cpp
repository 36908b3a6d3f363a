// How fast text becomes tokens: MB/s of a text file with the tokenizer of a folder, on one thread and on all.
//   tokenizer_bench TOKENIZER_FOLDER TEXT_FILE
// tools/tokenizer_bench.py makes both and compares with the Hugging Face library.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/data/tokenizer.h"

namespace {

using zeno::data::Tokenizer;

constexpr int kRounds = 3;

double cpu_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }
double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best of some rounds, in MB/s. One thread is measured by its CPU time, so that what else the machine
// does counts little.
template <class F>
double speed(double (*seconds)(), size_t bytes, F&& run) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double start = seconds();
    run();
    best = std::max(best, double(bytes) / 1e6 / (seconds() - start));
  }
  return best;
}

std::vector<std::string_view> cut(std::string_view text, size_t bytes) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t line = text.find('\n', std::min(at + bytes, text.size()));
    const size_t end = line == std::string_view::npos ? text.size() : line + 1;
    parts.push_back(text.substr(at, end - at));
    at = end;
  }
  return parts;
}

void measure(const char* folder, const char* file) {
  const double start = wall_seconds();
  const Tokenizer tokenizer = Tokenizer::open(folder);
  const double opening = wall_seconds() - start;
  const std::string text = zeno::read_file(file);
  const std::vector<std::string_view> documents = cut(text, 4 << 10);

  size_t tokens = 0;
  const double whole = speed(cpu_seconds, text.size(), [&] { tokens = tokenizer.encode(text).size(); });
  const double single = speed(cpu_seconds, text.size(), [&] {
    for (const std::string_view document : documents) (void)tokenizer.encode(document);
  });
  const double all = speed(wall_seconds, text.size(), [&] { (void)tokenizer.encode_all(documents); });
  const double spans = speed(cpu_seconds, text.size(), [&] {
    for (const std::string_view document : documents) (void)tokenizer.encode_with_spans(document);
  });
  fmt::print(
      "{{\"tokens\": {}, \"open_s\": {:.3f}, \"one_text\": {:.1f}, \"documents\": {:.1f}, "
      "\"all_threads\": {:.1f}, \"with_spans\": {:.1f}}}\n",
      tokens, opening, whole, single, all, spans);
}

}  // namespace

int main(int argc, char** argv) try {
  zeno::require(argc == 3, zeno::ErrorKind::usage, "usage: tokenizer_bench TOKENIZER_FOLDER TEXT_FILE");
  measure(argv[1], argv[2]);
  return 0;
} catch (const zeno::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return zeno::exit_code(error.kind());
}
