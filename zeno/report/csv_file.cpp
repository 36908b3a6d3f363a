#include "zeno/report/csv_file.h"

#include <fmt/format.h>
#include <charconv>

#include <cmath>
#include <iterator>

#include "zeno/report/json_text.h"

namespace zeno::report {
namespace {

std::string csv_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Inf" : "-Inf";
  return json_number(value);
}

// Name and contents of a column side by side, so that they cannot drift apart. All rows begin with step and
// epoch; those of steps fill the first group of columns, those of evaluations the second.
template <class Record>
struct Column {
  std::string_view name;
  std::string (*cell)(const Record&);
};

using Step = const StepRecord&;
constexpr Column<StepRecord> kStepColumns[] = {
    {"loss", [](Step r) { return csv_number(r.loss); }},
    {"grad_norm", [](Step r) { return csv_number(r.grad_norm); }},
    {"lr", [](Step r) { return csv_number(r.lr); }},
    {"tokens", [](Step r) { return fmt::to_string(r.tokens); }},
    {"num_tokens", [](Step r) { return fmt::to_string(r.num_tokens); }},
    {"tokens_per_s", [](Step r) { return csv_number(r.tokens_per_s); }},
    {"step_ms", [](Step r) { return csv_number(r.step_ms); }},
    {"data_wait_ms", [](Step r) { return csv_number(r.data_wait_ms); }},
    {"loss_scale", [](Step r) { return csv_number(r.loss_scale); }},
    {"skipped", [](Step r) { return std::string(r.skipped ? "1" : "0"); }},
    {"first_bad_tensor", [](Step r) { return r.first_bad ? csv_cell(r.first_bad->name) : ""; }},
    {"first_bad_rank", [](Step r) { return r.first_bad ? fmt::to_string(r.first_bad->rank) : ""; }},
    {"exposed_comm_ms", [](Step r) { return r.exposed_comm_ms ? csv_number(*r.exposed_comm_ms) : ""; }},
    {"bytes_gathered", [](Step r) { return fmt::to_string(r.bytes_gathered); }},
    {"bytes_reduced", [](Step r) { return fmt::to_string(r.bytes_reduced); }},
    {"peak_device_bytes", [](Step r) { return fmt::to_string(r.peak_device); }},
    {"peak_host_bytes", [](Step r) { return fmt::to_string(r.peak_host); }},
    {"peak_disk_bytes", [](Step r) { return fmt::to_string(r.peak_disk); }},
};

using Eval = const EvalRecord&;
constexpr Column<EvalRecord> kEvalColumns[] = {
    {"eval_loss", [](Eval r) { return csv_number(r.loss); }},
    {"eval_perplexity", [](Eval r) { return csv_number(r.perplexity); }},
    {"eval_token_accuracy", [](Eval r) { return csv_number(r.token_accuracy); }},
    {"eval_tokens", [](Eval r) { return fmt::to_string(r.tokens); }},
    {"eval_ms", [](Eval r) { return csv_number(r.ms); }},
};

template <class Record, size_t N>
std::string cells(const Column<Record> (&columns)[N], const Record& record) {
  std::string line;
  for (const auto& column : columns) line += ',' + column.cell(record);
  return line;
}

// Rows about steps that are done stay.
RecordFile open_rows(const Path& path, int64_t done) {
  if (done == 0) return RecordFile::create(path);
  return RecordFile::resume(path, [done](std::string_view row) {
    int64_t step = 0;
    const auto [stop, error] = std::from_chars(row.data(), row.data() + row.size(), step);
    return error == std::errc() && step <= done;
  });
}

}  // namespace

std::string csv_cell(std::string_view text) {
  if (text.find_first_of("\",\r\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (const char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + '"';
}

std::string csv_header() {
  std::string line = "step,epoch";
  for (const auto& column : kStepColumns) line += fmt::format(",{}", column.name);
  for (const auto& column : kEvalColumns) line += fmt::format(",{}", column.name);
  return line;
}

std::string to_csv(const StepRecord& record) {
  return fmt::format("{},{}{}{}", record.step, csv_number(record.epoch), cells(kStepColumns, record),
                     std::string(std::size(kEvalColumns), ','));
}

std::string to_csv(const EvalRecord& record) {
  return fmt::format("{},{}{}{}", record.step, csv_number(record.epoch),
                     std::string(std::size(kStepColumns), ','), cells(kEvalColumns, record));
}

CsvFile::CsvFile(const Path& path, int64_t done) : file_(open_rows(path, done)) {
  if (file_.empty()) file_.begin(csv_header() + '\n');
}

}  // namespace zeno::report
