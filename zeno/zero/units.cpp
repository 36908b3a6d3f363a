#include "zeno/zero/units.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/kernels/nf4.h"
#include "zeno/kernels/wire_cells.h"

namespace zeno::zero {
namespace {

void add_layer(UnitTable& table, std::map<std::string, int>& index, const std::string& name,
               const std::vector<nn::Parameter>& params, std::vector<int>& owner) {
  std::vector<int> used;
  for (const nn::Parameter& param : params) {
    const auto [it, fresh] = index.try_emplace(param.name, int(table.params.size()));
    if (fresh) {
      table.params.push_back(param);
      owner.push_back(int(table.unit_names.size()));
    } else {
      const nn::Parameter& first = table.params[it->second];
      ensure(first.rows == param.rows && first.cols == param.cols,
             "[units] tied parameter {}: got {}×{} in {}, expected {}×{}", param.name, param.rows, param.cols,
             name, first.rows, first.cols);
    }
    used.push_back(it->second);
  }
  table.unit_names.push_back(name);
  table.layer_params.push_back(std::move(used));
}

// Small tensors get the persistence budget first; equal sizes in table order.
std::vector<bool> choose_persistent(const UnitTable& table, const Policy& policy) {
  std::vector<bool> persistent(table.params.size(), false);
  if (policy.params.empty() && policy.offload.params == Tier::device) return persistent;
  std::vector<int> order(table.params.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return table.params[a].count() < table.params[b].count(); });
  int64_t total = 0;
  for (int i : order) {
    const int64_t count = table.params[i].count();
    if (count > policy.persist_below || total + count > policy.persist_total) break;
    persistent[i] = true;
    total += count;
  }
  return persistent;
}

// A frozen matrix between the embedding and the head.
bool is_base_weight(const UnitTable& table, const nn::Parameter& param, int owner) {
  return !param.trainable && !param.adapter && param.rows > 1 && owner > 0 && owner < table.loss_layer();
}

// No cell is ever cut.
static_assert(kFlatAlign % kWireCell == 0);
int64_t alignment(const Group& group) { return group.nf4 ? kNf4Cell : kFlatAlign; }

void make_groups(UnitTable& table, const Policy& policy, const comm::Mesh& mesh,
                 const std::vector<int>& owner) {
  const bool alone = mesh.size(comm::kDataAxes) == 1;
  const std::vector<bool> persistent = choose_persistent(table, policy);
  std::map<std::tuple<int, bool, bool, bool, bool>, int> index;
  table.places.resize(table.params.size());
  for (size_t i = 0; i < table.params.size(); ++i) {
    const nn::Parameter& param = table.params[i];
    const bool sparse = policy.sparse_gradients && param.sparse_rows && param.trainable && !alone;
    const bool nf4 = policy.nf4_base && is_base_weight(table, param, owner[i]);
    const auto key = std::tuple(owner[i], !param.trainable, bool(persistent[i]), sparse, nf4);
    const auto [it, fresh] = index.try_emplace(key, int(table.groups.size()));
    if (fresh) {
      Group group;
      group.unit = owner[i];
      group.trainable = param.trainable;
      group.persistent = persistent[i];
      group.sparse = sparse;
      group.nf4 = nf4;
      group.params = group.persistent ? comm::Axes{} : policy.params;
      group.int8 = policy.int8_weights && !nf4 && !group.params.empty();
      group.grads = group.sparse ? comm::Axes{} : policy.grads;
      group.optimizer = policy.optimizer;
      group.layout = FlatLayout(alignment(group));
      table.groups.push_back(std::move(group));
    }
    Group& group = table.groups[it->second];
    table.places[i] = {it->second, int(group.layout.tensors().size())};
    group.layout.add(int(i), param.rows, param.cols);
  }
  const int64_t chunk = std::min(policy.reduce_bucket, policy.gather_bucket);
  for (Group& group : table.groups)
    group.partition = Partition(group.layout.size(), mesh, chunk, alignment(group));
}

void find_stages(UnitTable& table, const std::vector<Stage>& stages) {
  const auto stage_of = [&](int layer) {
    return std::ranges::find_if(stages, [&](const Stage& stage) { return stage.has(layer); })->index;
  };
  for (Group& group : table.groups) {
    group.stage = stage_of(group.unit);
    group.here = false;
  }
  for (int layer = 0; layer <= table.loss_layer(); ++layer) {
    for (int param : table.layer_params[size_t(layer)]) {
      Group& group = table.groups[size_t(table.places[size_t(param)].group)];
      group.here |= table.stage.has(layer);
      const int stage = stage_of(layer);
      if (stage == group.stage || stage == group.twin) continue;
      ensure(group.twin < 0, "[units] {} is tied across more than two stages",
             table.params[size_t(param)].name);
      group.twin = stage;
    }
  }
}

// Parameters that several ranks keep whole, or that stay gathered, stay on the device.
void place_params(UnitTable& table, const Policy& policy, const comm::Mesh& mesh) {
  const Offload& offload = policy.offload;
  if (policy.params.empty() && mesh.size(comm::kDataAxes) > 1) return;
  int64_t host = 0;
  for (Group& group : table.groups) {
    if (offload.params == Tier::device || group.persistent || !group.here) continue;
    const int64_t count = group.partition.shard(group.params);
    const bool fits = offload.params == Tier::host || host + count <= offload.host_params;
    group.tier = fits ? Tier::host : Tier::disk;
    group.moves = group.tier == Tier::disk || offload.far_host;
    require(!group.moves || !group.trainable || group.params == group.optimizer, ErrorKind::usage,
            "[zero] parameters that leave the device: got shards over {}, and over {} for the optimizer "
            "states, expected "
            "the same; use --shard-group for both, or keep parameters on the device",
            describe(group.params), describe(group.optimizer));
    if (fits) host += count;
  }
}

// The first layers stay in the fastest tier: their gradients are ready last, and the next step needs their
// parameters first.
void place_states(UnitTable& table, const Policy& policy) {
  const Offload& offload = policy.offload;
  int64_t total = 0, host = 0;
  for (const Group& group : table.groups)
    total += group.trainable && group.here ? group.partition.shard(group.optimizer) : 0;
  int64_t resident =
      offload.optimizer == Tier::device ? total : total - int64_t(double(total) * offload.ratio);
  for (int g = 0; g < int(table.groups.size()); ++g) {
    const Group& group = table.groups[g];
    table.first_chunk.push_back(int(table.chunks.size()));
    if (!group.here) continue;
    const bool cut = offload.optimizer != Tier::device || group.tier == Tier::disk;
    // Plain SGD on parameters that are their own masters has no other states.
    const bool has_states =
        policy.moments_first || policy.moments_second || policy.compute != policy.states || group.moves;
    const int64_t end = group.partition.shard(group.trainable ? group.optimizer : group.params);
    const int64_t most = cut ? round_up(offload.chunk, alignment(group)) : end;
    for (int64_t begin = 0; begin < end; begin += most) {
      StateChunk chunk{g, begin, std::min(most, end - begin)};
      if (group.trainable && has_states && chunk.count > resident) {
        resident = 0;  // later chunks do not stay on the device either
        const bool fits = offload.optimizer == Tier::host || host + chunk.count <= offload.host_states;
        chunk.tier = fits ? Tier::host : Tier::disk;
        chunk.moves = chunk.tier == Tier::disk || offload.far_host;
        if (fits) host += chunk.count;
      } else if (group.trainable) {
        resident -= chunk.count;
      }
      table.chunks.push_back(chunk);
    }
  }
  table.first_chunk.push_back(int(table.chunks.size()));
}

// The next step needs the last layers' parameters last, so the CPU has time to update them while it begins.
void share_with_cpu(UnitTable& table, const Policy& policy) {
  if (policy.compute == policy.states) return;  // masters are the parameters on the device
  const auto on_host = [&](const StateChunk& chunk) {
    return chunk.tier == Tier::host && chunk.moves && !table.groups[size_t(chunk.group)].moves;
  };
  int64_t left = 0;
  for (const StateChunk& chunk : table.chunks) left += on_host(chunk) ? chunk.count : 0;
  left = int64_t(double(left) * policy.offload.cpu_share);
  for (auto chunk = table.chunks.rbegin(); chunk != table.chunks.rend() && left > 0; ++chunk) {
    if (!on_host(*chunk)) continue;
    chunk->by_cpu = true;
    chunk->moves = false;
    left -= chunk->count;
  }
}

// Masters that are kept beside their bf16 copy are split.
void choose_split(UnitTable& table, const Policy& policy) {
  if (!policy.splits_masters()) return;
  for (Group& group : table.groups) group.split = group.trainable && group.tier == Tier::device;
  for (const StateChunk& chunk : table.chunks) {
    if (chunk.tier != Tier::device) table.groups[size_t(chunk.group)].split = false;
  }
}

}  // namespace

size_t Group::stored_bytes(int64_t elements, DType compute) const {
  return nf4 ? nf4_bytes(elements) : size_t(elements) * size_of(compute);
}

size_t Group::gathered_bytes(int64_t elements, DType compute) const {
  return int8 ? wire_bytes(WireCode::int8, elements) : stored_bytes(elements, compute);
}

int UnitTable::first_trained() const {
  int layer = 0;
  const auto trained = [&](int p) { return params[size_t(p)].trainable; };
  while (layer < loss_layer() && std::ranges::none_of(layer_params[size_t(layer)], trained)) ++layer;
  return layer;
}

int64_t UnitTable::elements() const {
  int64_t sum = 0;
  for (const nn::Parameter& param : params) sum += param.count();
  return sum;
}

int64_t UnitTable::trainable_elements() const {
  int64_t sum = 0;
  for (const nn::Parameter& param : params) sum += param.trainable ? param.count() : 0;
  return sum;
}

UnitTable make_units(const nn::LayerList& model, const Policy& policy, const comm::Mesh& mesh) {
  return make_units(model, policy, mesh, {{0, 1, 0, int(model.layers.size()) + 1}}, 0);
}

UnitTable make_units(const nn::LayerList& model, const Policy& policy, const comm::Mesh& mesh,
                     const std::vector<Stage>& stages, int pipe) {
  UnitTable table{.stage = stages[size_t(pipe)]};
  std::map<std::string, int> index;
  std::vector<int> owner;
  for (const auto& layer : model.layers) add_layer(table, index, layer->name(), layer->parameters(), owner);
  add_layer(table, index, model.loss->name(), model.loss->parameters(), owner);
  for (nn::Parameter& param : table.params) param.trainable &= policy.trains;
  make_groups(table, policy, mesh, owner);
  find_stages(table, stages);
  place_params(table, policy, mesh);
  place_states(table, policy);
  share_with_cpu(table, policy);
  choose_split(table, policy);
  for (const std::vector<int>& params : table.layer_params) {
    std::vector<int> groups;
    for (int p : params) groups.push_back(table.places[p].group);
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    table.layer_groups.push_back(std::move(groups));
  }
  return table;
}

}  // namespace zeno::zero
