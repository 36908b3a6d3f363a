#include "zeno/report/metrics.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/json_limits.h"
#include "zeno/report/json_text.h"

namespace zeno::report {
namespace {

std::string bad_tensor_fields(const std::optional<BadTensor>& bad) {
  if (!bad) return "";
  return fmt::format(R"("first_bad_tensor":{},"first_bad_rank":{},)", json_string(bad->name), bad->rank);
}

// Lines about steps that are done stay; what came after them, and how that run ended, is told anew.
RecordFile open_lines(const Path& path, int64_t done) {
  if (done == 0) return RecordFile::create(path);
  return RecordFile::resume(path, [done](std::string_view line) {
    if (!json_excess(line).empty()) return false;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    const bool ours = json.is_object() && json.contains("step") && json["step"].is_number_integer();
    return ours && json["step"].get<int64_t>() <= done;
  });
}

}  // namespace

std::string to_json(const StepRecord& record) {
  std::string line =
      fmt::format(R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"tokens":{},"tokens_per_s":{},)",
                  record.step, json_number(record.loss), json_number(record.grad_norm),
                  json_number(record.lr), record.tokens, json_number(record.tokens_per_s));
  line +=
      fmt::format(R"("epoch":{},"num_tokens":{},"step_ms":{},"data_wait_ms":{},)", json_number(record.epoch),
                  record.num_tokens, json_number(record.step_ms), json_number(record.data_wait_ms));
  line += fmt::format(R"("loss_scale":{},"skipped":{},)", json_number(record.loss_scale), record.skipped);
  line += bad_tensor_fields(record.first_bad);
  line += fmt::format(R"("exposed_comm_ms":{},"bytes_gathered":{},"bytes_reduced":{},)",
                      record.exposed_comm_ms ? json_number(*record.exposed_comm_ms) : "null",
                      record.bytes_gathered, record.bytes_reduced);
  line += fmt::format(R"("peak_bytes":{{"device":{},"host":{},"disk":{}}}}})", record.peak_device,
                      record.peak_host, record.peak_disk);
  return line;
}

std::string to_json(const EvalRecord& record) {
  return fmt::format(
      R"({{"event":"eval","step":{},"epoch":{},"eval_loss":{},"perplexity":{},"token_accuracy":{},)"
      R"("eval_tokens":{},"eval_ms":{}}})",
      record.step, json_number(record.epoch), json_number(record.loss), json_number(record.perplexity),
      json_number(record.token_accuracy), record.tokens, json_number(record.ms));
}

std::string to_json(const BadStepRecord& record) {
  return fmt::format(R"({{"event":"bad_step","step":{},"kind":{},"loss":{},"mean":{},{}"batch":{}}})",
                     record.step, json_string(record.kind), json_number(record.loss),
                     json_number(record.mean), bad_tensor_fields(record.first_bad),
                     json_string(record.batch));
}

std::string to_json(const DoneRecord& record) {
  return fmt::format(R"({{"event":"done","weights_hash":"{:016x}"{}{}{}}})", record.weights_hash,
                     record.interrupted ? R"(,"interrupted":true)" : "",
                     record.stopped_early ? R"(,"stopped_early":true)" : "",
                     record.advice.empty() ? "" : fmt::format(R"(,"advice":{})", json_string(record.advice)));
}

MetricsFile::MetricsFile(const Path& path, int64_t done) : file_(open_lines(path, done)) {}

void MetricsFile::finish(const DoneRecord& record) {
  std::string line = to_json(record);
  ensure(!finished_, "[metrics] got a second last line of {}", file_.path().string());
  finished_ = true;
  file_.append(line += '\n');
}

void MetricsFile::write_line(std::string line) {
  ensure(!finished_, "[metrics] got a line after the last one of {}", file_.path().string());
  file_.append(line += '\n');
}

}  // namespace zeno::report
