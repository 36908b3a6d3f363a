#include "zeno/train/metrics.h"

#include <fmt/core.h>

#include <utility>

#include "zeno/base/error.h"
#include "zeno/train/json_text.h"

namespace zeno::train {

std::string to_json(const StepRecord& record) {
  std::string line =
      fmt::format(R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"tokens":{},"tokens_per_s":{},)",
                  record.step, json_number(record.loss), json_number(record.grad_norm),
                  json_number(record.lr), record.tokens, json_number(record.tokens_per_s));
  line += fmt::format(R"("step_ms":{},"loss_scale":{},"skipped":{},)", json_number(record.step_ms),
                      json_number(record.loss_scale), record.skipped);
  if (record.first_bad) {
    line += fmt::format(R"("first_bad_tensor":{},"first_bad_rank":{},)", json_string(record.first_bad->name),
                        record.first_bad->rank);
  }
  line += fmt::format(R"("exposed_comm_ms":{},"bytes_gathered":{},"bytes_reduced":{},)",
                      record.exposed_comm_ms ? json_number(*record.exposed_comm_ms) : "null",
                      record.bytes_gathered, record.bytes_reduced);
  line += fmt::format(R"("peak_bytes":{{"device":{},"host":{},"disk":{}}}}})", record.peak_device,
                      record.peak_host, record.peak_disk);
  return line;
}

std::string done_json(uint64_t weights_hash) {
  return fmt::format(R"({{"event":"done","weights_hash":"{:016x}"}})", weights_hash);
}

MetricsFile::MetricsFile(const Path& path) : file_(File::create(path)) {}

void MetricsFile::append(const StepRecord& record) {
  ensure(!finished_, "[metrics] got step {} after the last line of {}", record.step, file_.path().string());
  write_line(to_json(record));
}

void MetricsFile::finish(uint64_t weights_hash) {
  ensure(!finished_, "[metrics] got a second last line for {}", file_.path().string());
  write_line(done_json(weights_hash));
  finished_ = true;
}

void MetricsFile::write_line(std::string line) {
  line += '\n';
  file_.write_at(line.data(), line.size(), size_);
  size_ += line.size();
}

}  // namespace zeno::train
