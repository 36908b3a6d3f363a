#include "zeno/report/tensorboard_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <vector>

#include "zeno/base/host.h"
#include "zeno/report/crc32c.h"

namespace zeno::report {
namespace {

// The few pieces of protobuf's wire format that an Event needs. A field is a key (number and type) and its
// value.
enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(uint8_t(value) | 0x80);
  out += char(uint8_t(value));
}

void put_key(std::string& out, int field, Wire type) {
  put_varint(out, uint64_t(field) << 3 | uint64_t(type));
}

template <class Word>
void put_word(std::string& out, Word value) {
  for (size_t i = 0; i < sizeof(Word); ++i) out += char(uint8_t(value >> (8 * i)));  // little endian
}

void put_int(std::string& out, int field, int64_t value) {
  put_key(out, field, Wire::varint);
  put_varint(out, uint64_t(value));
}

void put_double(std::string& out, int field, double value) {
  put_key(out, field, Wire::fixed64);
  put_word(out, std::bit_cast<uint64_t>(value));
}

void put_float(std::string& out, int field, float value) {
  put_key(out, field, Wire::fixed32);
  put_word(out, std::bit_cast<uint32_t>(value));
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5.
std::string event_head(double wall_time, int64_t step) {
  std::string event;
  put_double(event, 1, wall_time);
  if (step != 0) put_int(event, 2, step);
  return event;
}

// Summary.Value: tag = 1, simple_value = 2.
std::string scalar_value(std::string_view tag, double value) {
  std::string out;
  put_bytes(out, 1, tag);
  put_float(out, 2, float(value));
  return out;
}

// Summary.Value: tag = 1, tensor = 8 (dtype = 1, tensor_shape = 2, string_val = 8), metadata = 9 (plugin_data
// = 1).
std::string text_value(std::string_view tag, std::string_view text) {
  constexpr int kStringType = 7;
  std::string plugin, metadata, tensor, out;
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_int(tensor, 1, kStringType);
  put_bytes(tensor, 2, "");  // a scalar
  put_bytes(tensor, 8, text);
  put_bytes(out, 1, tag);
  put_bytes(out, 8, tensor);
  put_bytes(out, 9, metadata);
  return out;
}

// TensorBoard reads a folder's files in the order of their names: the time leads. The counter keeps files of
// one second apart.
std::string file_name(double wall_time) {
  static std::atomic<int> made{0};
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}", int64_t(wall_time), host_name(), ::getpid(),
                     made++);
}

// A checksum of data that holds checksums is weak; the format rotates it and adds a constant.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xa282ead8;
}

// One record of the file: length, checksum, data, checksum.
std::string framed(std::string_view data) {
  std::string record;
  put_word(record, uint64_t(data.size()));
  put_word(record, masked_crc(record));
  record += data;
  put_word(record, masked_crc(data));
  return record;
}

RecordFile begin_file(const Path& folder, double wall_time) {
  make_folders(folder);
  return RecordFile::create(folder / file_name(wall_time));
}

}  // namespace

double wall_time_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

TensorBoardFile::TensorBoardFile(const Path& folder, double wall_time)
    : file_(begin_file(folder, wall_time)) {
  std::string event = event_head(wall_time, 0);
  put_bytes(event, 3, "brain.Event:2");
  file_.begin(framed(event));
}

void TensorBoardFile::scalar(std::string_view tag, int64_t step, double value, double wall_time) {
  scalars(step, std::array{TensorBoardScalar{tag, value}}, wall_time);
}

void TensorBoardFile::scalars(int64_t step, std::span<const TensorBoardScalar> values, double wall_time) {
  std::string summary;
  for (const TensorBoardScalar& s : values) put_bytes(summary, 1, scalar_value(s.tag, s.value));
  std::string event = event_head(wall_time, step);
  put_bytes(event, 5, summary);
  file_.append(framed(event));
}

void TensorBoardFile::text(std::string_view tag, int64_t step, std::string_view markdown, double wall_time) {
  std::string summary;
  put_bytes(summary, 1, text_value(tag, markdown));
  std::string event = event_head(wall_time, step);
  put_bytes(event, 5, summary);
  file_.append(framed(event));
}

void TensorBoardFile::append(const StepRecord& record, double wall_time) {
  std::vector<TensorBoardScalar> values{{"train/loss", record.loss},
                                        {"train/grad_norm", record.grad_norm},
                                        {"train/learning_rate", record.lr},
                                        {"train/epoch", record.epoch},
                                        {"train/num_tokens", double(record.num_tokens)},
                                        {"train/tokens_per_second", record.tokens_per_s},
                                        {"train/step_ms", record.step_ms},
                                        {"train/data_wait_ms", record.data_wait_ms},
                                        {"train/loss_scale", record.loss_scale},
                                        {"train/skipped", double(record.skipped)},
                                        {"memory/peak_device_bytes", double(record.peak_device)},
                                        {"memory/peak_host_bytes", double(record.peak_host)},
                                        {"memory/peak_disk_bytes", double(record.peak_disk)},
                                        {"comm/bytes_gathered", double(record.bytes_gathered)},
                                        {"comm/bytes_reduced", double(record.bytes_reduced)}};
  if (record.exposed_comm_ms) values.push_back({"comm/exposed_ms", *record.exposed_comm_ms});
  scalars(record.step, values, wall_time);
}

void TensorBoardFile::append(const EvalRecord& record, double wall_time) {
  scalars(record.step,
          std::array{TensorBoardScalar{"eval/loss", record.loss},
                     TensorBoardScalar{"eval/perplexity", record.perplexity},
                     TensorBoardScalar{"eval/token_accuracy", record.token_accuracy},
                     TensorBoardScalar{"eval/epoch", record.epoch}},
          wall_time);
}

}  // namespace zeno::report
