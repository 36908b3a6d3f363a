#include "zeno/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/support/expect_error.h"
#include "tests/support/sealed_manifest.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/newer_version.h"
#include "zeno/checkpoint/state_file.h"

namespace zeno::checkpoint {
namespace {

using test::expect_error;
using test::sealed_manifest;
using test::TempDir;

// Two states of two tensors; value i of a tensor is i + 1000 · tensor + 10000 · state.
Manifest layout(int world) {
  Manifest manifest;
  manifest.step = 7;
  manifest.ranks = world;
  manifest.states = {{"master", DType::f32}, {"first_moment", DType::bf16}};
  manifest.tensors = {{"a.weight", 30, 10}, {"b.bias", 1, 17}};
  manifest.run = R"({"tokens":123})";
  return manifest;
}

float value_of(int state, int tensor, int64_t i) { return float(i % 128 + 1000 * tensor + 10000 * state); }

template <class T>
std::vector<std::byte> bytes_of(const Extent& extent) {
  std::vector<T> values;
  for (int64_t i = 0; i < extent.count; ++i)
    values.push_back(T(value_of(extent.state, extent.tensor, extent.begin + i)));
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Rank r keeps every world-th stretch of 7 elements.
std::vector<Extent> extents_of(const Manifest& manifest, int rank) {
  std::vector<Extent> extents;
  int turn = 0;
  for (int s = 0; s < int(manifest.states.size()); ++s) {
    for (int t = 0; t < int(manifest.tensors.size()); ++t) {
      const int64_t count = manifest.tensors[size_t(t)].count();
      for (int64_t begin = 0; begin < count; begin += 7, ++turn) {
        if (turn % manifest.ranks == rank)
          extents.push_back({s, t, begin, std::min<int64_t>(7, count - begin)});
      }
    }
  }
  return extents;
}

void write_part(const Path& folder, const Manifest& manifest, int rank, std::vector<Extent> extents) {
  StateFileWriter writer(folder, manifest, rank, std::move(extents));
  std::vector<std::byte> image;
  for (const Extent& extent : writer.extents()) {
    const std::vector<std::byte> bytes = extent.state == 0 ? bytes_of<float>(extent) : bytes_of<BF16>(extent);
    image.insert(image.end(), bytes.begin(), bytes.end());
  }
  // In parts that end anywhere but with an extent.
  writer.write(
      [&](size_t begin, size_t end) { return std::span<const std::byte>(image).subspan(begin, end - begin); },
      std::max<size_t>(100, image.size() / 5));
  leave_note(folder, rank, manifest.ranks, {writer.commit()});
}

Path write_checkpoint(const Path& folder, int64_t step, int world) {
  Manifest manifest = layout(world);
  manifest.step = step;
  const Path path = folder / checkpoint_name(step);
  make_folders(path);
  for (int rank = 0; rank < world; ++rank) write_part(path, manifest, rank, extents_of(manifest, rank));
  for (int rank = 0; rank < world; ++rank)
    manifest.files.push_back(read_note(path, rank, world).value().front());
  commit_manifest(path, manifest);
  return path;
}

void flip_bit(const Path& path, uint64_t at, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(std::streamoff(at));
  const char byte = char(file.get() ^ (1 << bit));
  file.seekp(std::streamoff(at));
  file.put(byte);
}

TEST(Checkpoint, GivesBackEveryStretchWhoeverWroteIt) {
  for (int world : {1, 3, 5}) {
    const TempDir dir;
    const Checkpoint checkpoint = Checkpoint::open(write_checkpoint(dir.path(), 7, world));
    EXPECT_EQ(checkpoint.manifest().step, 7);
    EXPECT_EQ(checkpoint.manifest().run, R"({"tokens":123})");
    for (int64_t begin : {0, 1, 6, 7, 150, 299}) {
      for (int64_t count : {1, 7, 20, 150}) {
        if (begin + count > 300) continue;
        std::vector<float> got(size_t(count), -1);
        checkpoint.read("first_moment", "a.weight", begin, got);
        for (int64_t i = 0; i < count; ++i) {
          EXPECT_EQ(got[size_t(i)], float(BF16(value_of(1, 0, begin + i))));
        }
      }
    }
    EXPECT_TRUE(find_damage(checkpoint.folder()).empty());
    EXPECT_EQ(list_folder(checkpoint.folder()).size(), size_t(world) + 1) << "notes were left";
  }
}

// All values of all states, in pieces of `piece` elements at once; each must come once.
void expect_all_at_once(const Checkpoint& checkpoint, int64_t piece, const ReadOptions& options) {
  const Manifest& manifest = checkpoint.manifest();
  std::vector<StateStretch> stretches;
  std::vector<std::vector<float>> expected, got;
  for (int s = 0; s < int(manifest.states.size()); ++s) {
    for (int t = 0; t < int(manifest.tensors.size()); ++t) {
      const StateTensor& tensor = manifest.tensors[size_t(t)];
      for (int64_t begin = 0; begin < tensor.count(); begin += piece) {
        const int64_t count = std::min(piece, tensor.count() - begin);
        stretches.push_back({manifest.states[size_t(s)].name, tensor.name, begin, count});
        expected.emplace_back();
        for (int64_t i = begin; i < begin + count; ++i)
          expected.back().push_back(s == 0 ? value_of(s, t, i) : float(BF16(value_of(s, t, i))));
        got.emplace_back(size_t(count), -1);
      }
    }
  }
  std::atomic<int> inside = 0, repeated = 0;
  size_t last = 0;
  checkpoint.read(
      stretches,
      [&](size_t i, int64_t begin, DType dtype, std::span<std::byte> values) {
        if (options.in_order) {
          EXPECT_EQ(inside++, 0) << "two at once";
          EXPECT_GE(i, std::exchange(last, i));
        }
        dispatch_float(dtype, [&]<class T>() {
          for (size_t k = 0; k < values.size() / sizeof(T); ++k) {
            T value;
            std::memcpy(&value, &values[k * sizeof(T)], sizeof(T));
            float& to = got[i].at(size_t(begin - stretches[i].begin) + k);
            if (to != -1) ++repeated;
            to = float(value);
          }
        });
        std::ranges::fill(values, std::byte(0xff));
        if (options.in_order) --inside;
      },
      options);
  EXPECT_EQ(got, expected);
  EXPECT_EQ(repeated, 0);
}

TEST(Checkpoint, GivesManyStretchesAtOnce) {
  for (int world : {1, 3}) {
    const TempDir dir;
    const Checkpoint checkpoint = Checkpoint::open(write_checkpoint(dir.path(), 7, world));
    for (int64_t piece : {3, 7, 50, 300}) {
      for (int threads : {1, 4}) {
        expect_all_at_once(checkpoint, piece, {.threads = threads});
        expect_all_at_once(checkpoint, piece, {.threads = threads, .in_order = true});
      }
    }
  }
}

// An extent of several slices, at an address that no float has.
Path write_large(const Path& folder) {
  Manifest manifest = layout(1);
  manifest.tensors = {{"a.weight", 700, 1001}, {"b.bias", 1, 17}};
  const Path path = folder / checkpoint_name(1);
  make_folders(path);
  std::vector<Extent> extents;
  for (int t : {1, 0})
    for (int s : {1, 0}) extents.push_back({s, t, 0, manifest.tensors[size_t(t)].count()});
  write_part(path, manifest, 0, extents);
  manifest.files.push_back(read_note(path, 0, 1).value().front());
  commit_manifest(path, manifest);
  return path;
}

TEST(Checkpoint, GivesLargeExtentsInSlices) {
  const TempDir dir;
  const Checkpoint checkpoint = Checkpoint::open(write_large(dir.path()));
  for (bool in_order : {false, true})
    expect_all_at_once(checkpoint, 300'001, {.threads = 3, .in_order = in_order});
}

TEST(Checkpoint, ManyAtOnceFailAsOne) {
  const TempDir dir;
  const Path path = write_large(dir.path());
  const std::vector<StateStretch> all{{"first_moment", "b.bias", 0, 17},
                                      {"master", "b.bias", 0, 17},
                                      {"first_moment", "a.weight", 0, 700'700},
                                      {"master", "a.weight", 10, 20}};
  const auto take = [](size_t, int64_t, DType, std::span<std::byte>) {};
  const uint64_t size = File::open(path / state_file_name(0, 1)).size();
  for (bool in_order : {false, true}) {
    const ReadOptions options{.threads = 4, .in_order = in_order};
    // Far behind what is asked for, but in the same extent.
    flip_bit(path / state_file_name(0, 1), size - 1, 3);
    expect_error(ErrorKind::data, {state_file_name(0, 1), "master/a.weight@0", "damaged"},
                 [&] { Checkpoint::open(path).read(all, take, options); });
    flip_bit(path / state_file_name(0, 1), size - 1, 3);
    Checkpoint::open(path).read(all, take, options);
    const auto refuse = [](size_t i, int64_t, DType, std::span<std::byte>) {
      require(i != 2, ErrorKind::memory, "no room");
    };
    expect_error(ErrorKind::memory, {"no room"}, [&] { Checkpoint::open(path).read(all, refuse, options); });
  }
}

TEST(Checkpoint, ManifestSurvivesItsText) {
  Manifest manifest = layout(2);
  for (int rank = 0; rank < 2; ++rank) {
    manifest.files.push_back({state_file_name(rank, 2), 100, 5, extents_of(manifest, rank)});
  }
  EXPECT_EQ(parse_manifest(format_manifest(manifest), "m"), manifest);
}

TEST(Checkpoint, AManifestThatDoesNotCoverTheStateIsRefused) {
  Manifest manifest = layout(1);
  manifest.files.push_back({state_file_name(0, 1), 100, 5, extents_of(manifest, 0)});
  Manifest hole = manifest;
  hole.files[0].extents.erase(hole.files[0].extents.begin() + 3);
  expect_error(ErrorKind::data, {"master of a.weight", "21", "300"},
               [&] { parse_manifest(format_manifest(hole), "m"); });
  Manifest twice = manifest;
  twice.files[0].extents.push_back(twice.files[0].extents[1]);
  expect_error(ErrorKind::data, {"master of a.weight", "each once"},
               [&] { parse_manifest(format_manifest(twice), "m"); });
  manifest.files[0].extents[0].tensor = 9;
  expect_error(ErrorKind::data, {"outside the listed states and tensors"},
               [&] { parse_manifest(format_manifest(manifest), "m"); });
}

// Every value, as a reader gets it.
std::vector<float> all_values(const Path& path) {
  const Checkpoint checkpoint = Checkpoint::open(path);
  std::vector<float> all;
  for (const StateKind& state : checkpoint.manifest().states) {
    for (const StateTensor& tensor : checkpoint.manifest().tensors) {
      std::vector<float> values(size_t(tensor.count()));
      checkpoint.read(state.name, tensor.name, 0, values);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

// Names the file, and where the damage is in a rank's file its tensors too.
void expect_named(const std::vector<std::string>& damage, const std::string& file) {
  ASSERT_FALSE(damage.empty()) << file;
  EXPECT_NE(damage[0].find(file), std::string::npos) << damage[0];
  const bool tensor =
      damage[0].find("a.weight") != std::string::npos || damage[0].find("b.bias") != std::string::npos;
  EXPECT_TRUE(tensor || file == kManifestName) << damage[0];
}

// Whatever bit of whatever file is wrong: no reader gets a wrong value, and it is named. There is no padding
// in a checkpoint whose bits would not matter.
TEST(Checkpoint, EveryFlippedBitIsFound) {
  const TempDir dir;
  const Path path = write_checkpoint(dir.path(), 7, 2);
  const auto expect_found = [&](const std::string& name, uint64_t at, int bit) {
    flip_bit(path / name, at, bit);
    expect_named(find_damage(path), name);
    try {
      all_values(path);
      ADD_FAILURE() << name << " byte " << at << " bit " << bit << " was read without an error";
    } catch (const Error& error) {
      EXPECT_EQ(int(error.kind()), int(ErrorKind::data)) << error.what();
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
    flip_bit(path / name, at, bit);
  };
  for (uint64_t i = 0; i < 8 * 32; ++i) expect_found(std::string(kManifestName), i / 8, int(i % 8));
  for (const std::string& name : list_folder(path)) {
    const uint64_t size = File::open(path / name).size();
    const uint64_t stride = ZENO_FULL_TESTS ? 1 : 1 + size / 149;
    for (uint64_t at = 0; at < size; at += stride) expect_found(name, at, int(at / stride % 8));
  }
  EXPECT_TRUE(find_damage(path).empty());
}

TEST(Checkpoint, AFileThatIsCutOrGoneIsNamed) {
  for (const std::string& name : {std::string(kManifestName), state_file_name(0, 2), state_file_name(1, 2)}) {
    const TempDir dir;
    const Path path = write_checkpoint(dir.path(), 7, 2);
    const uint64_t size = File::open(path / name).size();
    for (uint64_t left : {size - 1, size / 2, uint64_t(9), uint64_t(0)}) {
      std::filesystem::resize_file(path / name, left);
      expect_named(find_damage(path), name);
      EXPECT_THROW(all_values(path), Error) << name << " " << left;
    }
    std::filesystem::remove(path / name);
    expect_named(find_damage(path), name);
    EXPECT_THROW(all_values(path), Error) << name;
  }
}

TEST(Checkpoint, AFolderWithoutManifestDoesNotExist) {
  const TempDir dir;
  const Manifest manifest = layout(1);
  const Path path = dir.path() / checkpoint_name(3);
  make_folders(path);
  write_part(path, manifest, 0, extents_of(manifest, 0));
  EXPECT_TRUE(list_checkpoints(dir.path()).empty());
  EXPECT_FALSE(open_latest(dir.path()));
  expect_error(ErrorKind::data, {"manifest.json", "the checkpoint is not complete"},
               [&] { Checkpoint::open(path); });
}

TEST(Checkpoint, TheLatestIsTheNewestWholeOne) {
  const TempDir dir;
  write_checkpoint(dir.path(), 10, 2);
  const Path damaged = write_checkpoint(dir.path(), 20, 2);
  std::filesystem::resize_file(damaged / state_file_name(1, 2), 50);
  EXPECT_EQ(open_latest(dir.path()).value().manifest().step, 10);
  std::filesystem::remove(damaged / state_file_name(1, 2));
  EXPECT_EQ(open_latest(dir.path()).value().manifest().step, 10);
}

// Of whatever version comes next, sealed or not.
TEST(Checkpoint, WhatANewerZenoWroteStaysAndIsNotPassedOver) {
  const TempDir dir;
  for (int64_t step : {10, 20, 30, 40, 50}) write_checkpoint(dir.path(), step, 1);
  const auto write = [&](int64_t step, const std::string& text) {
    std::ofstream(dir.path() / checkpoint_name(step) / kManifestName) << text;
  };
  write(10, R"({"seal":"0123456789abcdef","version":123456789012345678901234567890,"all else":null})");
  write(30, sealed_manifest(R"("version":2,"all else":["is",{"different":null}])"));
  const Path newer = dir.path() / checkpoint_name(30);
  EXPECT_TRUE(is_newer(newer));
  EXPECT_FALSE(is_newer(dir.path() / checkpoint_name(20)));
  EXPECT_FALSE(is_newer(dir.path()));
  const auto refused = [](const auto& body) {
    expect_error(ErrorKind::data, {"manifest.json", "newer Zeno", "version 2", "up to 1"}, body);
    EXPECT_THROW(body(), NewerVersion);
  };
  refused([&] { Checkpoint::open(newer); });
  refused([&] { remove_checkpoint(newer); });
  EXPECT_EQ(find_damage(newer).size(), 1u);
  EXPECT_EQ(open_latest(dir.path()).value().manifest().step, 50);
  apply_retention(dir.path(), {.keep_last = 1}, 50);
  EXPECT_EQ(list_folder(dir.path()),
            (std::vector<std::string>{checkpoint_name(10), checkpoint_name(30), checkpoint_name(50)}));
  remove_checkpoint(dir.path() / checkpoint_name(50));
  refused([&] { open_latest(dir.path()); });
}

// One flipped bit makes another digit of the version, and no newer Zeno.
TEST(Checkpoint, DamageIsNoNewerVersion) {
  for (const char digit : {'3', '5', '9'}) {
    const TempDir dir;
    for (int64_t step : {10, 20}) write_checkpoint(dir.path(), step, 1);
    const Path path = dir.path() / checkpoint_name(20);
    std::string text = read_file(path / kManifestName);
    const size_t version = text.find("\"version\":1,");
    ASSERT_NE(version, std::string::npos);
    text[version + 10] = digit;
    replace_file(path / kManifestName, text);
    EXPECT_FALSE(is_newer(path));
    expect_error(ErrorKind::data, {"manifest.json", "damaged: got checksum"},
                 [&] { Checkpoint::open(path); });
    EXPECT_EQ(open_latest(dir.path()).value().manifest().step, 10);
    remove_checkpoint(path);
    EXPECT_FALSE(folder_exists(path));
  }
}

TEST(Checkpoint, RetentionKeepsTheLastEveryNthAndTheBest) {
  const TempDir dir;
  for (int64_t step = 10; step <= 60; step += 10) write_checkpoint(dir.path(), step, 1);
  make_folders(dir.path() / checkpoint_name(35));  // of a save that was killed
  make_folders(dir.path() / checkpoint_name(90));  // of a save that has just begun
  make_folders(dir.path() / "something else");
  apply_retention(dir.path(), {.keep_last = 2, .keep_every = 30, .keep_best = 20}, 60);
  EXPECT_EQ(list_folder(dir.path()),
            (std::vector<std::string>{"something else", checkpoint_name(20), checkpoint_name(30),
                                      checkpoint_name(50), checkpoint_name(60), checkpoint_name(90)}));
}

}  // namespace
}  // namespace zeno::checkpoint
