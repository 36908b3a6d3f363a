// The text of a plan file: a title, per machine (version of cuBLASLt and model of the GPU) one line per plan,
// and a checksum. Pure functions of strings; who reads and writes the file is matmul_plans.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "zeno/kernels/cuda/matmul/matmul_key.h"

namespace zeno::cuda {

// Machine, as machine_name() spells it, to its plans.
using PlanSet = std::map<std::string, std::map<MatmulKey, MatmulPlan>>;

// "130100 NVIDIA H200, 132 SMs"
std::string machine_name(size_t library_version, std::string_view device, int multiprocessors);
// The version of cuBLASLt in a machine name; 0 when there is none.
size_t version_of(std::string_view machine);

inline constexpr int64_t kPlanFileVersion = 2;
// The version in the title; 0 if this is not a plan file.
int64_t plan_file_version(std::string_view text);

std::string format_plan_file(const PlanSet& plans);
// Plans have origin `loaded`. Throws Error(data) that says what is wrong.
PlanSet parse_plan_file(std::string_view text);

}  // namespace zeno::cuda
