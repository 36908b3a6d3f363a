// The event file against a reader of its own: frames, checksums and fields. tools/check_tensorboard.py does
// the same with the real TensorBoard.
#include "zeno/report/tensorboard_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "tests/support/temp_dir.h"
#include "zeno/report/crc32c.h"

namespace zeno::report {
namespace {

TEST(Crc32c, KnownAnswers) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);              // the catalogue's check value
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);  // RFC 3720, B.4
}

template <class T>
T word(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

uint32_t masked(const std::string& bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  size_t at = 0;
  while (at < file.size()) {
    const uint64_t length = word<uint64_t>(file, at);
    EXPECT_EQ(word<uint32_t>(file, at + 8), masked(file.substr(at, 8)));
    EXPECT_LE(at + 16 + length, file.size());
    records.push_back(file.substr(at + 12, length));
    EXPECT_EQ(word<uint32_t>(file, at + 12 + length), masked(records.back()));
    at += 16 + length;
  }
  return records;
}

// The fields of a protobuf message: contents of a length-delimited one, or the bytes of the number.
std::multimap<int, std::string> fields_of(const std::string& message) {
  std::multimap<int, std::string> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t byte = uint8_t(message.at(at++));
      value |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    size_t length = 0;
    switch (key & 7) {
      case 0: {
        const uint64_t value = varint();
        fields.emplace(int(key >> 3), std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
        continue;
      }
      case 1:
        length = 8;
        break;
      case 2:
        length = varint();
        break;
      case 5:
        length = 4;
        break;
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
        return fields;
    }
    fields.emplace(int(key >> 3), message.substr(at, length));
    at += length;
  }
  return fields;
}

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

std::vector<ReadEvent> events_of(const Path& path) {
  std::vector<ReadEvent> events;
  for (const std::string& record : records_of(read_file(path))) {
    const auto fields = fields_of(record);
    ReadEvent event{.wall_time = word<double>(fields.find(1)->second, 0)};
    if (fields.count(2)) event.step = word<int64_t>(fields.find(2)->second, 0);
    if (fields.count(3)) event.version = fields.find(3)->second;
    const auto summary =
        fields.count(5) ? fields_of(fields.find(5)->second) : std::multimap<int, std::string>{};
    for (const auto& [number, bytes] : summary) {
      EXPECT_EQ(number, 1);
      const auto value = fields_of(bytes);
      const std::string tag = value.find(1)->second;
      if (value.count(2)) event.scalars[tag] = word<float>(value.find(2)->second, 0);
      if (value.count(8)) event.texts[tag] = fields_of(value.find(8)->second).find(8)->second;
    }
    events.push_back(event);
  }
  return events;
}

TEST(TensorBoardFile, BeginsWithItsVersionAndHasAFamiliarName) {
  const test::TempDir folder;
  const TensorBoardFile first(folder.path() / "new" / "logs", 1700000000.5),
      second(folder.path() / "new" / "logs", 1700000000.5);
  EXPECT_EQ(first.path().filename().string().find("events.out.tfevents.1700000000."), 0u) << first.path();
  EXPECT_NE(first.path(), second.path());
  const std::vector<ReadEvent> events = events_of(first.path());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1700000000.5);
}

TEST(TensorBoardFile, KeepsScalarsAndText) {
  const test::TempDir folder;
  TensorBoardFile file(folder.path(), 1.0);
  file.scalar("train/loss", 300, 2.5, 12.25);
  file.scalar("train/loss", 0, std::nan(""), 13);
  file.text("run/command", 1, "`zeno train` \xc3\xa9", 14);
  const std::vector<ReadEvent> events = events_of(file.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[1].step, 300);
  EXPECT_EQ(events[1].wall_time, 12.25);
  EXPECT_EQ(events[1].scalars, (std::map<std::string, float>{{"train/loss", 2.5f}}));
  EXPECT_EQ(events[2].step, 0);
  EXPECT_TRUE(std::isnan(events[2].scalars.at("train/loss")));
  EXPECT_EQ(events[3].texts.at("run/command"), "`zeno train` \xc3\xa9");
}

TEST(TensorBoardFile, WritesRecordsUnderTheUsualTags) {
  const test::TempDir folder;
  TensorBoardFile file(folder.path());
  StepRecord step{.step = 7, .loss = 1.5, .grad_norm = 0.5, .lr = 1e-3, .epoch = 0.25, .tokens_per_s = 1000};
  step.peak_device = 1 << 20;
  file.append(step, 20);
  step.exposed_comm_ms = 3;
  file.append(step, 21);
  file.append(EvalRecord{.step = 7, .loss = 2, .perplexity = 8, .token_accuracy = 0.5}, 22);
  const std::vector<ReadEvent> events = events_of(file.path());
  ASSERT_EQ(events.size(), 4u);
  const auto& values = events[1].scalars;
  EXPECT_EQ(values.at("train/loss"), 1.5f);
  EXPECT_EQ(values.at("train/grad_norm"), 0.5f);
  EXPECT_EQ(values.at("train/learning_rate"), 1e-3f);
  EXPECT_EQ(values.at("train/epoch"), 0.25f);
  EXPECT_EQ(values.at("train/tokens_per_second"), 1000.f);
  EXPECT_EQ(values.at("memory/peak_device_bytes"), float(1 << 20));
  EXPECT_EQ(values.count("comm/exposed_ms"), 0u);
  EXPECT_EQ(events[2].scalars.at("comm/exposed_ms"), 3.f);
  EXPECT_EQ(events[3].step, 7);
  EXPECT_EQ(events[3].scalars.at("eval/loss"), 2.f);
  EXPECT_EQ(events[3].scalars.at("eval/perplexity"), 8.f);
  EXPECT_EQ(events[3].scalars.at("eval/token_accuracy"), 0.5f);
}

}  // namespace
}  // namespace zeno::report
