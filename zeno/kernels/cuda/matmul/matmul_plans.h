// Which cuBLASLt algorithm each matmul runs. A plan is made once per shape, layout, types and alignment, and
// shared by all devices of one model in the process, so that its ranks sum in the same order. Without tuning
// a plan is the library's first choice; tuned plans are timed and can be kept in a file.
//
// Same bits: only algorithms with a fixed order of summation are taken, so a plan always gives the same bits.
// Two machines, or two tunings, may settle on different plans; the plan file pins them.
//
// Threads: all calls may come from any thread. A MatmulTuning applies to matmuls of its own thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace zeno::cuda {

// While one of these lives, a matmul without a tuned plan is timed with several candidates, using the
// operands of the call: it synchronizes its stream, needs no memory of its own, and leaves garbage in C.
// About a second for a large matmul; what took more than two seconds is a line in the log at the end.
// Products under graph capture are never tuned.
class MatmulTuning {
 public:
  MatmulTuning();
  ~MatmulTuning();
  MatmulTuning(const MatmulTuning&) = delete;
  MatmulTuning& operator=(const MatmulTuning&) = delete;

 private:
  [[maybe_unused]] const int products_;  // timed by this process before; unused without CUDA
  [[maybe_unused]] const int64_t milliseconds_;
};

// Takes the plans that this version of cuBLASLt made, for any model of GPU. A missing file holds none; a
// damaged one or one of an older version is ignored with a line in the log, never an error; one of a newer
// Zeno is a NewerVersion, since saving would replace it. Plans already tuned by this process win. Call before
// the first matmul.
void load_matmul_plans(const std::filesystem::path& path);
// Adds the tuned plans of this process to those in the file, in one step; makes the folder. Processes must
// not save the same file at the same time: one rank per machine saves. A file that cannot be written is a
// warning.
void save_matmul_plans(const std::filesystem::path& path);
// A table: product, candidates timed; time and rate of the best in bursts and under the power limit; tile and
// cluster, in the library's column-major words, and parts of K.
std::string describe_matmul_plans();

}  // namespace zeno::cuda
