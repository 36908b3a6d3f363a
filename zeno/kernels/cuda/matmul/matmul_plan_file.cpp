#include "zeno/kernels/cuda/matmul/matmul_plan_file.h"

#include <fmt/core.h>

#include <charconv>
#include <iterator>

#include "zeno/base/error.h"

namespace zeno::cuda {
namespace {

constexpr std::string_view kName = "zeno matmul plans ", kMachine = "machine ", kChecksum = "checksum ";

uint64_t checksum(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3u;
  return hash;
}

// Numbers of one line, separated by single blanks.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  template <class T>
  T number(T least, T most, int base = 10) {
    const std::string_view word = next();
    T value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    require(error == std::errc() && end == word.data() + word.size() && value >= least && value <= most,
            ErrorKind::data, "got '{}', expected a number from {} to {}", word, least, most);
    return value;
  }
  bool flag() { return number(0, 1) != 0; }
  uint8_t alignment() { return uint8_t(number(0, 8)); }
  void finish() const { require(rest_.empty(), ErrorKind::data, "got '{}' after the last number", rest_); }

 private:
  std::string_view next() {
    const size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return word;
  }
  std::string_view rest_;
};

void append_plan(std::string& text, const MatmulKey& key, const MatmulPlan& plan) {
  auto out = std::back_inserter(text);
  fmt::format_to(out, "{} {} {} {} {} {} {} {} {} {} {:d} {:d} {:d} {} {} {} {} {} {} {} {} {} {}", key.m,
                 key.n, key.k, key.lda, key.ldb, key.ldc, key.ld_residual, int(key.a_type), int(key.b_type),
                 int(key.output), key.transpose_a, key.transpose_b, key.bias, int(key.addend), key.align_a,
                 key.align_b, key.align_c, key.align_bias, key.align_residual, plan.workspace,
                 plan.candidates, int64_t(plan.burst * 1000), int64_t(plan.sustained * 1000));
  for (uint64_t word : plan.algorithm) fmt::format_to(out, " {:x}", word);
  text += '\n';
}

std::pair<MatmulKey, MatmulPlan> parse_plan(std::string_view text) {
  constexpr int64_t kMost = int64_t(1) << 40;
  LineReader line(text);
  MatmulKey key;
  for (int64_t* size : {&key.m, &key.n, &key.k, &key.lda, &key.ldb, &key.ldc, &key.ld_residual})
    *size = line.number<int64_t>(0, kMost);
  for (OperandType* type : {&key.a_type, &key.b_type})
    *type = OperandType(line.number(int(OperandType::f32), int(OperandType::e5m2)));
  key.output = DType(line.number(int(DType::f32), int(DType::f16)));
  key.transpose_a = line.flag();
  key.transpose_b = line.flag();
  key.bias = line.flag();
  key.addend = Addend(line.number(int(Addend::none), int(Addend::residual)));
  for (uint8_t* align : {&key.align_a, &key.align_b, &key.align_c, &key.align_bias, &key.align_residual})
    *align = line.alignment();
  MatmulPlan plan{.origin = MatmulPlan::Origin::loaded};
  plan.workspace = line.number<uint64_t>(0, uint64_t(kMost));
  plan.candidates = line.number(1, 1 << 20);
  for (double* time : {&plan.burst, &plan.sustained}) *time = double(line.number<int64_t>(0, kMost)) / 1000;
  for (uint64_t& word : plan.algorithm) word = line.number<uint64_t>(0, UINT64_MAX, 16);
  line.finish();
  return {key, plan};
}

std::string title_of_plan_file() { return fmt::format("{}{}\n", kName, kPlanFileVersion); }

// The text between title and checksum, once both are right.
std::string_view body_of(std::string_view text) {
  const std::string title = title_of_plan_file();
  require(text.starts_with(title), ErrorKind::data, "not a plan file of this version");
  const size_t seal = text.rfind(kChecksum);
  require(seal != text.npos && text[seal - 1] == '\n', ErrorKind::data, "no checksum: it was cut short");
  require(text.substr(seal) == fmt::format("{}{:016x}\n", kChecksum, checksum(text.substr(0, seal))),
          ErrorKind::data, "wrong checksum");
  return text.substr(title.size(), seal - title.size());
}

}  // namespace

std::string machine_name(size_t library_version, std::string_view device, int multiprocessors) {
  return fmt::format("{} {}, {} SMs", library_version, device, multiprocessors);
}

size_t version_of(std::string_view machine) {
  size_t version = 0;
  std::from_chars(machine.data(), machine.data() + machine.size(), version);
  return version;
}

int64_t plan_file_version(std::string_view text) {
  int64_t version = 0;
  if (text.starts_with(kName))
    std::from_chars(text.data() + kName.size(), text.data() + text.size(), version);
  return version;
}

std::string format_plan_file(const PlanSet& plans) {
  std::string text = title_of_plan_file();
  for (const auto& [machine, list] : plans) {
    fmt::format_to(std::back_inserter(text), "{}{}\n", kMachine, machine);
    for (const auto& [key, plan] : list) append_plan(text, key, plan);
  }
  fmt::format_to(std::back_inserter(text), "{}{:016x}\n", kChecksum, checksum(text));
  return text;
}

PlanSet parse_plan_file(std::string_view text) {
  std::string_view body = body_of(text);
  PlanSet plans;
  std::map<MatmulKey, MatmulPlan>* list = nullptr;
  while (!body.empty()) {
    const size_t end = std::min(body.find('\n'), body.size());
    const std::string_view line = body.substr(0, end);
    body.remove_prefix(std::min(end + 1, body.size()));
    if (line.starts_with(kMachine)) {
      list = &plans[std::string(line.substr(kMachine.size()))];
      continue;
    }
    require(list != nullptr, ErrorKind::data, "a plan without a machine");
    list->insert(parse_plan(line));
  }
  return plans;
}

}  // namespace zeno::cuda
