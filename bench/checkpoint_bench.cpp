// Saving and loading the state of a GPT-2-124M-shaped run (1.5 GB) on thread ranks, against the disk's own
// rates measured in the same run: every rank writes a file of its own from memory that no cache holds, or
// reads one, in order and past the page cache. Every file is new: removing an old one takes a disk with
// discard 0.15 s/GB, and is part of neither.
//   checkpoint_bench [--folder DIR] [--ranks 2] [--rounds 3] [--steps 6] [--cuda] [--bf16]
// Also what an asynchronous save costs: how much longer steps take beside it, against a save that is waited
// for.
#include <CLI/CLI.hpp>

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/rng.h"
#include "zeno/comm/world.h"
#include "zeno/model/init.h"
#include "zeno/model/layers.h"
#include "zeno/train/saving/checkpoint_saver.h"
#include "zeno/train/saving/checkpoint_state.h"

using namespace zeno;

namespace {

struct Options {
  std::string folder = "/tmp/zeno-checkpoint-bench";
  int ranks = 2, rounds = 3, steps = 6;
  bool cuda = false;  // all ranks on GPU 0
  bool bf16 = false;  // parameters, beside fp32 masters
  int64_t seq = 128;
};

// Seconds until all ranks are through.
double timed(comm::World& world, const std::function<void()>& work) {
  world.exchange("");
  const auto start = std::chrono::steady_clock::now();
  work();
  world.exchange("");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One rank's file in order, in large pieces, past the page cache.
class RawFile {
 public:
  RawFile(Path path, size_t bytes)
      : path_(std::move(path)), bytes_(bytes / kPiece * kPiece), memory_(allocate_host(bytes_)) {
    auto* words = reinterpret_cast<uint64_t*>(memory_.data);
    for (size_t i = 0; i < bytes_ / 8; ++i) words[i] = random_bits(1, 2, i);
  }
  ~RawFile() { memory_.release(memory_.data); }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  size_t bytes() const { return bytes_; }
  void remove() const { std::filesystem::remove(path_); }
  void write() {  // a virtual disk takes what is in a cache faster, which no state is
    transfer(O_WRONLY | O_CREAT | O_EXCL | O_DIRECT,
             [&](int fd, off_t at) { return ::pwrite(fd, memory_.data + at, kPiece, at); });
  }
  void read() {
    transfer(O_RDONLY | O_DIRECT, [&](int fd, off_t at) { return ::pread(fd, memory_.data, kPiece, at); });
  }

 private:
  static constexpr size_t kPiece = size_t(8) << 20;
  template <class Move>
  void transfer(int flags, Move&& move) {
    const int fd = ::open(path_.c_str(), flags, 0644);
    require(fd >= 0, ErrorKind::io, "[bench] cannot open {} past the page cache", path_.string());
    for (size_t at = 0; at < bytes_; at += kPiece)
      require(move(fd, off_t(at)) == ssize_t(kPiece), ErrorKind::io, "[bench] short transfer in {}",
              path_.string());
    if ((flags & O_CREAT) != 0) ::fsync(fd);
    ::close(fd);
  }

  Path path_;
  size_t bytes_;
  Block memory_;  // huge pages: others cost a third of the rate
};

// So that the next read comes from the disk.
void drop_from_memory(const Path& folder) {
  for (const std::string& name : list_folder(folder)) {
    const File file = File::open(folder / name);
    ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

struct Figures {
  double raw_write = 0, save = 0, raw_read = 0, load = 0;  // GB/s of all ranks, the best round
  double save_s = 0, plain_s = 0, beside_s = 0;  // a save that is waited for; steps without and beside one
  double bytes = 0;
};

class Rank {
 public:
  Rank(const Options& options, comm::World& world)
      : o_(options),
        world_(world),
        engine_(make_engine()),
        saver_({.folder = o_.folder, .retention = {.keep_last = 0}}, *engine_, world) {
    for (int64_t r = 0; r < o_.seq; ++r) {
      tokens_.push_back(int32_t(random_bits(1, uint64_t(world.rank()), uint64_t(r)) % 50257));
      positions_.push_back(int32_t(r));
    }
  }

  Figures run() {
    Figures f;
    const size_t mine = engine_->snapshot().size();
    RawFile raw(Path(o_.folder) / fmt::format("raw-{}", world_.rank()), mine);
    f.bytes = double(mine) * world_.size();
    step();
    for (int round = 0; round < o_.rounds; ++round) {
      const double raw_bytes = double(raw.bytes()) * world_.size();
      f.raw_write = std::max(f.raw_write, raw_bytes / timed(world_, [&] { raw.write(); }) / 1e9);
      const double save_s = timed(world_, [&] {
        saver_.start(++saved_, "{}");
        saver_.finish();
      });
      f.save_s = round == 0 ? save_s : std::min(f.save_s, save_s);
      f.save = f.bytes / f.save_s / 1e9;
      const Path folder = Path(o_.folder) / checkpoint::checkpoint_name(saved_);
      if (world_.rank() == 0) drop_from_memory(folder);
      f.raw_read = std::max(f.raw_read, raw_bytes / timed(world_, [&] { raw.read(); }) / 1e9);
      const double load_s =
          timed(world_, [&] { train::restore(checkpoint::Checkpoint::open(folder), *engine_); });
      f.load = std::max(f.load, f.bytes / load_s / 1e9);
      const double plain = timed(world_, [&] { steps(); });
      const double beside = timed(world_, [&] {
        saver_.start(++saved_, "{}");
        steps();
      });
      saver_.finish();
      raw.remove();
      if (world_.rank() == 0) {
        for (int64_t step : {saved_ - 1, saved_})
          std::filesystem::remove_all(Path(o_.folder) / checkpoint::checkpoint_name(step));
      }
      f.plain_s = round == 0 ? plain : std::min(f.plain_s, plain);
      f.beside_s = round == 0 ? beside : std::min(f.beside_s, beside);
    }
    return f;
  }

 private:
  std::unique_ptr<zero::Engine> make_engine() const {
    zero::EngineOptions options{.mesh = comm::Mesh::flat(world_.size()), .shape = {1, o_.seq}, .threads = 1};
    if (o_.cuda) options.device = {Device::Kind::cuda, 0};
    zero::apply_stage(options.policy, 3);
    if (o_.bf16) options.policy.compute = DType::bf16;
    options.snapshot_piece = checkpoint::kExtentElements;
    auto engine = std::make_unique<zero::Engine>(
        model::build_layers(
            model::make_config(
                {.arch = model::Arch::gpt2, .hidden = 768, .layers = 12, .heads = 12, .vocab = 50257}),
            o_.seq),
        options, world_);
    engine->load([](const nn::Parameter& param, int64_t begin, std::span<float> out) {
      model::initial_values(param, 1, begin, begin + int64_t(out.size()), out.data());
    });
    return engine;
  }
  void step() {
    const zero::MicroBatch batch{tokens_, tokens_, positions_, {}, positions_};
    engine_->step({&batch, 1}, {.hyper = {.lr = 1e-4f, .step = ++done_}, .clip = 1});
  }
  void steps() {
    for (int i = 0; i < o_.steps; ++i) step();
  }

  const Options& o_;
  comm::World& world_;
  std::unique_ptr<zero::Engine> engine_;
  train::CheckpointSaver saver_;
  std::vector<int32_t> tokens_, positions_;
  int64_t saved_ = 0, done_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("saving and loading checkpoints");
  app.add_option("--folder", o.folder);
  app.add_option("--ranks", o.ranks);
  app.add_option("--rounds", o.rounds);
  app.add_option("--steps", o.steps);
  app.add_flag("--cuda", o.cuda);
  app.add_flag("--bf16", o.bf16);
  CLI11_PARSE(app, argc, argv);
  make_folders(o.folder);
  Figures f;
  comm::run_thread_ranks(o.ranks, {}, [&](comm::World& world) {
    const Figures mine = Rank(o, world).run();
    if (world.rank() == 0) f = mine;
  });
  std::filesystem::remove_all(o.folder);
  fmt::print("{:.2f} GB of state on {} ranks, best of {} rounds\n", f.bytes / 1e9, o.ranks, o.rounds);
  fmt::print("write: disk {:.3f} GB/s, save {:.3f} GB/s, ratio {:.2f}\n", f.raw_write, f.save,
             f.save / f.raw_write);
  fmt::print("read:  disk {:.3f} GB/s, load {:.3f} GB/s, ratio {:.2f}\n", f.raw_read, f.load,
             f.load / f.raw_read);
  fmt::print("{} steps {:.2f} s, beside a save {:.2f} s: {:.1f} % of a save that is waited for ({:.2f} s)\n",
             o.steps, f.plain_s, f.beside_s, 100 * (f.beside_s - f.plain_s) / f.save_s, f.save_s);
}
