// The parameter table of a model and its cut into units and groups.
//
// A unit is the parameters that one layer owns. Within a unit, parameters that are treated alike form a
// group: one flat buffer, one partition. A tied parameter belongs to the first layer that names it; later
// layers use it there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zeno/device/flat_layout.h"
#include "zeno/nn/layer.h"
#include "zeno/zero/partition.h"
#include "zeno/zero/policy.h"
#include "zeno/zero/stages.h"

namespace zeno::zero {

struct Group {
  int unit = 0;
  int stage = 0;     // the first pipeline stage that uses it, which saves it
  int twin = -1;     // tied parameters: the other stage that uses it
  bool here = true;  // this rank's stage uses it; other stages have none of its states
  bool trainable = true;
  bool persistent = false;   // stays gathered between uses though parameters are sharded
  bool sparse = false;       // gradients are exchanged row by row
  Tier tier = Tier::device;  // where parameters are kept between uses
  bool moves = false;        // fetched to the device for each use
  bool split = false;        // masters keep only the bits that bf16 parameters lack (master_rest.h)
  bool nf4 = false;          // kept as cells of 4-bit codes; layout and partition never cut a cell
  bool int8 = false;         // gathered for use as cells of 8-bit codes, which are decoded then
  // The axes that each is sharded over between uses; none: kept whole.
  comm::Axes params, grads, optimizer;
  FlatLayout layout;  // ids are indices into UnitTable::params
  Partition partition;

  int64_t padded() const { return partition.padded(); }
  // Whether an update leaves parameters that must be gathered before their next use.
  bool stale() const { return trainable && !(optimizer - params).empty(); }
  // The bytes that `elements` parameters take where they are kept; whole cells in NF4.
  size_t stored_bytes(int64_t elements, DType compute) const;
  // The same in a region that they are gathered into.
  size_t gathered_bytes(int64_t elements, DType compute) const;
  // Whether what is kept or gathered must be decoded before layers use it.
  bool coded() const { return nf4 || int8; }
};

// Where a parameter lives: group and index within its layout.
struct ParamPlace {
  int group = 0;
  int tensor = 0;
};

// A range of what a rank keeps of a group, whose optimizer states are in one place and move as one.
struct StateChunk {
  int group = 0;
  int64_t begin = 0, count = 0;  // elements
  Tier tier = Tier::device;      // of masters and moments
  bool moves = false;            // to the device, or from the disk, for the update
  bool by_cpu = false;           // updated where it is, by the host of a GPU
};

// The same on all ranks, except for the pipeline stage and which groups are `here`.
struct UnitTable {
  Stage stage;                        // of this rank
  std::vector<nn::Parameter> params;  // table order, tied ones once
  std::vector<ParamPlace> places;     // of each parameter
  std::vector<Group> groups;
  std::vector<StateChunk> chunks;       // of all groups, in their order
  std::vector<int> first_chunk;         // of each group, and one past the last
  std::vector<std::string> unit_names;  // of each layer, the loss last
  std::vector<std::vector<int>>
      layer_params;  // parameter indices a layer uses, in its own order; the loss last
  std::vector<std::vector<int>> layer_groups;  // groups a layer touches, each once; the loss last

  int loss_layer() const { return int(layer_params.size()) - 1; }
  // The first layer with trainable parameters; layers below it have no backward. The loss layer if there is
  // none.
  int first_trained() const;
  int64_t elements() const;  // of all parameters
  int64_t trainable_elements() const;
};

// The table for a rank at place `pipe` of a pipeline of these stages.
UnitTable make_units(const nn::LayerList& model, const Policy& policy, const comm::Mesh& mesh,
                     const std::vector<Stage>& stages, int pipe);
// Without a pipeline.
UnitTable make_units(const nn::LayerList& model, const Policy& policy, const comm::Mesh& mesh);

}  // namespace zeno::zero
