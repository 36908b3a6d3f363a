// The cache: built once per content, whole or not at all, by one builder at a time, in bounded memory.
#include "zeno/data/dataset/cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/dataset/dataset_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/sanitized.h"

namespace zeno::data {
namespace {

namespace fs = std::filesystem;
using test::DatasetFolder;
using test::expect_error;

std::string lines(int count, const std::string& text = "some words to learn") {
  std::string out;
  for (int i = 0; i < count; ++i) out += fmt::format("{{\"text\": \"{} {}\"}}\n", text, i);
  return out;
}

int64_t folders_in(const Path& path) {
  return fs::exists(path) ? std::distance(fs::directory_iterator(path), {}) : 0;
}
Path only_folder(const Path& path) {
  EXPECT_EQ(folders_in(path), 1);
  return fs::directory_iterator(path)->path();
}

TEST(Cache, IsBuiltOncePerContent) {
  const DatasetFolder folder;
  const Path file = folder.write("a.jsonl", lines(10));
  DatasetSpec spec = folder.spec({file});
  EXPECT_TRUE(prepare_dataset(spec));
  EXPECT_FALSE(prepare_dataset(spec));
  const auto changed = [&](auto change) {
    DatasetSpec other = spec;
    change(other);
    EXPECT_TRUE(prepare_dataset(other));
    EXPECT_FALSE(prepare_dataset(other));
  };
  changed([](DatasetSpec& s) { s.loss_on = LossOn::all; });
  changed([](DatasetSpec& s) { s.format = DataFormat::text; });
  changed([](DatasetSpec& s) { s.max_samples = 3; });
  changed([](DatasetSpec& s) { s.vocab_size = 300; });
  changed([](DatasetSpec& s) { s.template_extra = "{}"; });
  changed([](DatasetSpec& s) { s.chat_date = "2025-01-31"; });
  changed([](DatasetSpec& s) { s.skip_bad_lines = true; });
  changed([&](DatasetSpec&) {
    folder.write("model/chat_template.jinja", test::kChatTemplate + std::string(" "));
  });
  changed([&](DatasetSpec&) { folder.write("a.jsonl", lines(11)); });
  changed([&](DatasetSpec&) {
    fs::last_write_time(file, fs::file_time_type::clock::now() + std::chrono::hours(1));
  });
  EXPECT_EQ(folder.open(spec).documents(), 11);
}

TEST(Cache, DoesNotDependOnThreads) {
  const DatasetFolder folder, other;
  const std::string text = lines(500);
  const DatasetSpec one = folder.spec({folder.write("a.jsonl", text)}),
                    four = other.spec({other.write("a.jsonl", text)});
  prepare_dataset(one, {}, 1);
  prepare_dataset(four, {}, 4);
  EXPECT_EQ(test::marked_texts(TokenSource::open(one)), test::marked_texts(TokenSource::open(four)));
}

TEST(Cache, StopsAtMaxSamples) {
  const DatasetFolder folder;
  DatasetSpec spec = folder.spec({folder.write("a.jsonl", lines(50)), folder.write("b.jsonl", lines(50))});
  for (const int64_t most : {1, 49, 50, 51, 100, 1000}) {
    spec.max_samples = most;
    EXPECT_EQ(folder.open(spec).documents(), std::min<int64_t>(most, 100));
  }
}

TEST(Cache, BothWidthsRoundTrip) {
  const DatasetFolder folder;
  for (const int64_t vocab : {65536, 65537}) {
    DatasetSpec spec = folder.spec({folder.write(
        "a.jsonl", fmt::format("{{\"input_ids\": [1, {}, 2], \"mask\": [1, 0, 1]}}", vocab - 1))});
    spec.vocab_size = vocab;
    const TokenSource source = folder.open(spec);
    std::vector<int32_t> ids(3);
    std::vector<uint8_t> learned(3);
    source.copy(0, ids);
    source.copy_learned(0, learned);
    EXPECT_EQ(ids, (std::vector<int32_t>{1, int32_t(vocab - 1), 2}));
    EXPECT_EQ(learned, (std::vector<uint8_t>{1, 0, 1}));
  }
}

TEST(Cache, ProgressRunsToTheEndAndCanCancel) {
  const DatasetFolder folder;
  const std::string text = lines(200);
  const DatasetSpec spec = folder.spec({folder.write("a.jsonl", text)});
  expect_error(ErrorKind::usage, {"enough"},
               [&] { prepare_dataset(spec, [](const BuildState&) { fail(ErrorKind::usage, "enough"); }); });
  EXPECT_EQ(folders_in(folder.caches()), 0);
  BuildState last;
  prepare_dataset(spec, [&](const BuildState& state) { last = state; });
  EXPECT_EQ(last.bytes_read, text.size());
  EXPECT_EQ(last.bytes_total, text.size());
  EXPECT_EQ(last.samples, 200);
}

// Fails the n-th write, sync or rename, as a full disk does.
struct FailingDisk : FileSystem {
  std::atomic<int64_t> left;
  std::atomic<int64_t> calls{0};
  explicit FailingDisk(int64_t n) : left(n) {}
  bool fails() {
    ++calls;
    errno = ENOSPC;
    return left-- == 0;
  }
  ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) override {
    if (fails()) return -1;
    return FileSystem::pwrite(fd, data, std::max<size_t>(1, bytes / 2), offset);  // and every write is cut
  }
  int fsync(int fd) override { return fails() ? -1 : FileSystem::fsync(fd); }
  int rename(const char* from, const char* to) override {
    return fails() ? -1 : FileSystem::rename(from, to);
  }
};

TEST(Cache, AFullDiskLeavesNothingWhereverItStrikes) {
  const DatasetFolder folder;
  const DatasetSpec spec = folder.spec({folder.write("a.jsonl", lines(20))});
  int64_t failures = 0;
  for (;; ++failures) {
    FailingDisk disk(failures);
    const FileSystemOverride override(disk);
    try {
      prepare_dataset(spec);
      break;
    } catch (const Error& error) {
      EXPECT_EQ(int(error.kind()), int(ErrorKind::io)) << error.what();
      EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos);
    }
    EXPECT_EQ(folders_in(folder.caches()), 0);
  }
  EXPECT_GT(failures, 20);
  EXPECT_EQ(TokenSource::open(spec).documents(), 20);
}

TEST(Cache, DamageIsSeenAndRepaired) {
  const DatasetFolder folder;
  const DatasetSpec spec = folder.spec({folder.write("a.jsonl", lines(20))});
  const auto expected = test::marked_texts(folder.open(spec));
  const Path cache = only_folder(folder.caches());
  const auto damaged = [&](const char* name, auto&& damage) {
    std::string bytes = read_file(cache / name);
    damage(bytes);
    std::ofstream(cache / name, std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_THROW(TokenSource::open(spec), Error) << name;
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(prepare_dataset(spec)) << name;
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("rebuilding it"), std::string::npos);
    EXPECT_EQ(test::marked_texts(TokenSource::open(spec)), expected);
  };
  for (const char* name : {"tokens.bin", "learned.bin", "index.bin", "lines.bin", "manifest.json"}) {
    damaged(name, [](std::string& bytes) { bytes.pop_back(), bytes.pop_back(); });
    damaged(name, [](std::string& bytes) { bytes.clear(); });
  }
  damaged("index.bin", [](std::string& bytes) { bytes[9] = char(bytes[9] ^ 1); });
  damaged("manifest.json",
          [](std::string& bytes) { bytes.replace(bytes.find("\"version\": 2"), 12, "\"version\": 1"); });
  fs::remove(cache / "tokens.bin");
  EXPECT_TRUE(prepare_dataset(spec));
}

TEST(Cache, AChangedByteIsSeenAndRepaired) {
  const DatasetFolder folder;
  const DatasetSpec spec = folder.spec({folder.write("a.jsonl", lines(20))});
  EXPECT_TRUE(prepare_dataset(spec));
  const Path cache = only_folder(folder.caches());
  for (const char* name : {"tokens.bin", "learned.bin", "index.bin", "lines.bin"}) {
    const std::string before = read_file(cache / name);
    std::string damaged = before;
    damaged[3] = char(damaged[3] ^ 1);
    std::ofstream(cache / name, std::ios::binary | std::ios::trunc) << damaged;
    EXPECT_TRUE(prepare_dataset(spec)) << name;
    EXPECT_EQ(read_file(cache / name), before);
  }
  EXPECT_FALSE(prepare_dataset(spec));
}

TEST(Cache, ANewerOneIsNotReplaced) {
  const DatasetFolder folder;
  const DatasetSpec spec = folder.spec({folder.write("a.jsonl", lines(20))});
  EXPECT_TRUE(prepare_dataset(spec));
  const Path manifest = only_folder(folder.caches()) / "manifest.json";
  std::string text = read_file(manifest);
  text.replace(text.find("\"version\": 2"), 12, "\"version\": 3");
  replace_file(manifest, text);
  for (int i = 0; i < 2; ++i)
    expect_error(ErrorKind::data, {"newer Zeno", "version 3", "up to 2", "--cache"},
                 [&] { prepare_dataset(spec); });
  EXPECT_EQ(read_file(manifest), text);
}

// Runs f in a child process and gives its pid.
template <class F>
pid_t spawn(F&& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      code = f();
    } catch (const std::exception&) {
    }
    ::_exit(code);
  }
  return child;
}
int result_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

TEST(Cache, AKilledBuildIsNeverUsedAndIsCleanedUp) {
  const DatasetFolder folder;
  const DatasetSpec spec = folder.spec({folder.write("a.jsonl", lines(20))});
  const pid_t child = spawn([&] {
    prepare_dataset(
        spec, [](const BuildState&) { ::raise(SIGKILL); }, 1);
    return 0;
  });
  EXPECT_EQ(result_of(child), 100 + SIGKILL);
  const Path left = only_folder(folder.caches());
  EXPECT_FALSE(is_complete_cache(left));
  expect_error(ErrorKind::data, {"a.jsonl", "not prepared"}, [&] { TokenSource::open(spec); });

  // Another dataset's build clears it away; so does its own.
  DatasetSpec other = folder.spec({folder.write("b.jsonl", lines(5))});
  EXPECT_TRUE(prepare_dataset(other, {}, 1));
  EXPECT_NE(only_folder(folder.caches()), left);
  EXPECT_EQ(folder.open(spec).documents(), 20);
}

TEST(Cache, BuildersInSeveralProcessesWaitForEachOther) {
  const DatasetFolder folder;
  const DatasetSpec spec = folder.spec({folder.write("a.jsonl", lines(2000))});
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(spawn([&] {
      const bool built = prepare_dataset(spec, {}, 1);
      return TokenSource::open(spec).documents() == 2000 ? 10 + int(built) : 1;
    }));
  }
  int built = 0;
  for (const pid_t child : children) {
    const int result = result_of(child);
    EXPECT_TRUE(result == 10 || result == 11) << result;
    built += result == 11;
  }
  EXPECT_EQ(built, 1);
}

TEST(Cache, BuildersInSeveralThreadsWaitForEachOther) {
  const DatasetFolder folder;
  const DatasetSpec spec = folder.spec({folder.write("a.jsonl", lines(2000))});
  std::atomic<int> built = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      built += prepare_dataset(spec, {}, 1);
      EXPECT_EQ(TokenSource::open(spec).documents(), 2000);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(built, 1);
}

// A failing builder takes the folder away while others wait for its lock: they must all see the failure.
TEST(Cache, FailingBuildersDoNotConfuseEachOther) {
  const DatasetFolder folder;
  const DatasetSpec spec = folder.spec({folder.write("a.jsonl", lines(500) + "nonsense")});
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      try {
        prepare_dataset(spec, {}, 1);
      } catch (const Error& error) {
        failed += error.kind() == ErrorKind::data;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 4);
  EXPECT_EQ(folders_in(folder.caches()), 0);
}

TEST(Cache, MemoryDoesNotGrowWithTheData) {
  if (test::kSanitized) GTEST_SKIP() << "freed memory is kept by the sanitizer";
  const DatasetFolder folder;
  const std::string block = lines(10000, std::string(200, 'x'));  // about 2.3 MB
  const auto grown_by = [&](int blocks) {
    const Path path = folder.path() / fmt::format("{}.jsonl", blocks);
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < blocks; ++i) file << block;
    file.close();
    int64_t kilobytes = 0;
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = spawn([&] {
      rusage before, after;
      ::getrusage(RUSAGE_SELF, &before);
      prepare_dataset(folder.spec({path}), {}, 2);
      ::getrusage(RUSAGE_SELF, &after);
      const int64_t grown = after.ru_maxrss - before.ru_maxrss;
      return ::write(ends[1], &grown, sizeof(grown)) == ssize_t(sizeof(grown)) ? 0 : 1;
    });
    EXPECT_EQ(result_of(child), 0);
    EXPECT_EQ(::read(ends[0], &kilobytes, sizeof(int64_t)), ssize_t(sizeof(int64_t)));
    ::close(ends[0]);
    ::close(ends[1]);
    return kilobytes;
  };
  // Both are long enough to fill what readers and encoders hold; the data of one is 41 MB more.
  const int64_t small = grown_by(6), large = grown_by(24);
  EXPECT_LT(large, small + 20 * 1024) << small;
}

}  // namespace
}  // namespace zeno::data
