#include "zeno/plan/machine/machine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/base/json_limits.h"
#include "zeno/base/math.h"
#include "zeno/base/newer_version.h"
#include "zeno/base/utf8.h"

namespace zeno::plan {
namespace {

constexpr int64_t kVersion = 2;  // of the file; 1 had no rails
constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kMostRanks = 1 << 20;    // on a node, and nodes
constexpr double kMostOfAnything = 1e18;  // bytes, and FLOP/s
constexpr uint64_t kMostFileBytes = 1 << 20;

// Every number of a machine once, for reading and writing.
struct Field {
  std::string_view name;
  double& value;
};

std::vector<Field> fields_of(Machine& m) {
  return {{"matmul_16bit_flops", m.matmul_16bit},
          {"matmul_fp32_flops", m.matmul_fp32},
          {"matmul_fp8_flops", m.matmul_fp8},
          {"attention_flops", m.attention},
          {"memory_bytes_per_s", m.memory_rate},
          {"packed_elements_per_s", m.packing},
          {"launch_s", m.launch},
          {"memory_bytes", m.memory},
          {"host_memory_bytes", m.host_memory},
          {"host_updates_per_s", m.host_updates},
          {"host_link_bytes_per_s", m.host_link},
          {"disk_read_bytes_per_s", m.disk_read},
          {"disk_write_bytes_per_s", m.disk_write},
          {"disk_bytes", m.disk},
          {"inside_bytes_per_s", m.inside.rate},
          {"inside_latency_s", m.inside.latency},
          {"between_bytes_per_s", m.between.rate},
          {"between_latency_s", m.between.latency}};
}

// docs/plan.md says where each figure comes from.
std::vector<Machine> known_machines() {
  const Machine h200{.name = "h200-1",
                     .kind = Device::Kind::cuda,
                     .matmul_16bit = 730e12,
                     .matmul_fp32 = 45e12,
                     .matmul_fp8 = 1250e12,
                     .attention = 440e12,
                     .memory_rate = 4.25e12,
                     .launch = 10e-6,
                     .memory = 139.8 * kGiB,
                     .host_memory = 125 * kGiB,
                     .host_updates = 6.2e9,
                     .host_link = 48e9,
                     .disk_read = 4.0e9,
                     .disk_write = 2.2e9,
                     .disk = 64e9,
                     .inside = {370e9, 3e-6},
                     .between = {45e9, 14e-6}};
  Machine h100 = h200;
  h100.name = "h100-8";
  h100.node_ranks = h100.rails = 8;
  h100.memory_rate = 2.95e12;
  h100.memory = 79.1 * kGiB;
  h100.host_memory = 2000e9;
  h100.host_updates = 12e9;
  h100.disk_read = 27e9;
  h100.disk_write = 11e9;
  h100.disk = 28e12;
  Machine a100 = h100;
  a100.name = "a100-8";
  a100.matmul_16bit = 260e12;
  a100.matmul_fp32 = 18e12;
  a100.matmul_fp8 = a100.matmul_16bit;
  a100.attention = 180e12;
  a100.memory_rate = 1.75e12;
  a100.host_link = 21e9;
  a100.disk_read = 10e9;
  a100.disk_write = 5e9;
  a100.inside.rate = 230e9;
  a100.between.rate = 22e9;
  Machine v100 = a100;
  v100.name = "v100-16";
  v100.node_ranks = 16;  // two on each of 8 rails
  v100.matmul_16bit = v100.matmul_fp8 = 90e12;
  v100.matmul_fp32 = 14e12;
  v100.attention = 45e12;
  v100.memory_rate = 0.8e12;
  v100.memory = 31.7 * kGiB;
  v100.host_memory = 1500e9;
  v100.host_updates = 6e9;
  v100.host_link = 3e9;
  v100.inside.rate = 120e9;
  v100.between.rate = 11e9;
  return {h200, h100, a100, v100};
}

// What a file holds; no object where it is no JSON.
nlohmann::json read_object(const Path& file) {
  const std::string text = read_file(file, kMostFileBytes);
  check_json_limits(text, fmt::format("[machine] {}", file.string()));
  return nlohmann::json::parse(text, nullptr, false);
}

// Short enough for one line of an error.
std::string shown(const nlohmann::json& value) {
  if (value.is_structured()) return fmt::format("an {}", value.type_name());
  return shortened(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), 60);
}

// A newer Zeno may know more of a machine. A file without a version is of the first.
void refuse_newer(const nlohmann::json& json, const Path& file) {
  const int64_t version = json.contains("version") && json["version"].is_number_integer()
                              ? json["version"].get<int64_t>()
                              : kVersion;
  if (version > kVersion)
    throw NewerVersion(fmt::format("[machine] {}", file.string()), "machine profile", version, kVersion,
                       "another file or --cache folder");
}

Machine parse_machine(const nlohmann::json& json, const Path& file) {
  refuse_newer(json, file);
  const auto check = [&](bool good, std::string_view key, std::string_view expected) {
    if (good) return;
    fail(ErrorKind::data,
         "[machine] {}: \"{}\": got {}, expected {}; write the file again with zeno doctor --measure",
         file.string(), shortened(key, 60), json.contains(key) ? shown(json[std::string(key)]) : "nothing",
         expected);
  };
  const auto text = [&](const char* key) {
    check(json.contains(key) && json[key].is_string(), key, "a text");
    return json[key].get<std::string>();
  };
  const auto number = [&](const std::string& key, double most = kMostOfAnything) {
    const bool good = json.contains(key) && json[key].is_number() && json[key].get<double>() >= 0 &&
                      json[key].get<double>() <= most;
    check(good, key, fmt::format("a number from 0 to {:g}", most));
    return json[key].get<double>();
  };
  Machine machine;
  machine.name = text("name");
  const std::string kind = text("device");
  check(kind == "cpu" || kind == "cuda", "device", "\"cpu\" or \"cuda\"");
  machine.kind = kind == "cuda" ? Device::Kind::cuda : Device::Kind::cpu;
  machine.nodes = int(number("nodes", kMostRanks));
  machine.node_ranks = int(number("node_ranks", kMostRanks));
  check(machine.nodes > 0, "nodes", "at least 1");
  check(machine.node_ranks > 0, "node_ranks", "at least 1");
  check(double(machine.nodes) * machine.node_ranks <= kMostRanks, "nodes",
        fmt::format("at most {:g} ranks in total", kMostRanks));
  machine.rails = json.contains("rails") ? int(number("rails", kMostRanks)) : machine.node_ranks;
  check(machine.rails > 0, "rails", "at least 1");
  std::vector<std::string> known{"version", "name", "device", "nodes", "node_ranks", "rails"};
  for (const Field& field : fields_of(machine)) {
    field.value = number(known.emplace_back(field.name));
  }
  for (const auto& [key, value] : json.items())
    check(std::ranges::find(known, key) != known.end(), key, "no such field");
  return machine;
}

}  // namespace

double Machine::matmul(DType dtype, bool fp8) const {
  if (fp8) return matmul_fp8;
  return dtype == DType::f32 ? matmul_fp32 : matmul_16bit;
}

bool Machine::links(int ranks) const {
  if (ranks == 1) return true;
  const Machine machine = with_ranks(ranks);
  return (machine.node_ranks == 1 || inside.rate > 0) && (machine.nodes == 1 || between.rate > 0);
}

Machine Machine::with_ranks(int ranks) const {
  Machine machine = *this;
  if (kind == Device::Kind::cpu) {
    const int on_node = div_ceil(ranks, nodes);
    machine.node_ranks = on_node;
    for (double* shared :
         {&machine.matmul_16bit, &machine.matmul_fp32, &machine.matmul_fp8, &machine.attention,
          &machine.memory_rate, &machine.packing, &machine.memory, &machine.inside.rate})
      *shared /= on_node;
    return machine;
  }
  machine.node_ranks = std::min(ranks, node_ranks);
  machine.nodes = div_ceil(ranks, machine.node_ranks);
  return machine;
}

std::string describe_rails(const Machine& machine, int ranks) {
  const Machine used = machine.with_ranks(ranks);
  if (used.nodes == 1) return {};
  return fmt::format("{} rail{} of {:.1f} GB/s for the {} rank{} of a node", used.rails,
                     used.rails == 1 ? "" : "s", used.between.rate / 1e9, used.node_ranks,
                     used.node_ranks == 1 ? "" : "s");
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const Machine& machine : known_machines()) names.push_back(machine.name);
  return names;
}

Machine named_machine(std::string_view name) {
  const size_t cut = name.rfind('x');
  for (Machine machine : known_machines()) {
    if (name == machine.name) return machine;
    if (cut == std::string_view::npos || name.substr(0, cut) != machine.name) continue;
    const std::string_view count = name.substr(cut + 1);
    const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), machine.nodes);
    if (error != std::errc() || end != count.data() + count.size() || machine.nodes < 1 ||
        double(machine.nodes) * machine.node_ranks > kMostRanks)
      break;
    machine.name = name;
    return machine;
  }
  fail(ErrorKind::usage,
       "[machine] {}: got no such name or file, expected {}, one of them with a number of nodes (h100-8x64), "
       "or a file of zeno doctor --measure",
       name, fmt::join(machine_names(), ", "));
}

Machine load_machine(const Path& file) {
  const nlohmann::json json = read_object(file);
  require(json.is_object(), ErrorKind::data,
          "[machine] {}: got no JSON object, expected the rates of a machine; write it with zeno doctor "
          "--measure",
          file.string());
  return parse_machine(json, file);
}

void save_machine(const Machine& machine, const Path& file) {
  if (file_exists(file)) {
    const nlohmann::json there = read_object(file);
    if (there.is_object()) refuse_newer(there, file);
  }
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["name"] = machine.name;
  json["device"] = machine.kind == Device::Kind::cuda ? "cuda" : "cpu";
  json["nodes"] = machine.nodes;
  json["node_ranks"] = machine.node_ranks;
  json["rails"] = machine.rails;
  Machine copy = machine;
  for (const Field& field : fields_of(copy)) json[std::string(field.name)] = field.value;
  replace_file(file, json.dump(2) + "\n");
}

Machine find_machine(const std::string& name_or_file) {
  return file_exists(name_or_file) ? load_machine(name_or_file) : named_machine(name_or_file);
}

}  // namespace zeno::plan
