// Proves before the first step that the programs of all ranks fit together: every collective has its
// partners, in one order, and no order of arrival can deadlock.
//
// The proof walks all programs together: each rank issues its collectives one after the other, in the order
// of its program. (The host of a GPU does exactly that; lanes of a CPU may run ahead of this order but never
// behind.) If all programs reach their end, there is one order of all collectives that is valid for every
// rank, so no ranks can wait for each other in a circle.
#pragma once

#include <string>
#include <vector>

#include "zeno/comm/world.h"
#include "zeno/zero/program/program.h"

namespace zeno::zero {

// A collective, or one end of a message, in terms that are the same on all ranks that take part.
struct Communication {
  CommUse use;
  std::string what;        // "reduce blocks.3 g5[0..2)+ over inner"
  std::optional<Hop> hop;  // for a message: between which places of the group
  bool sends = false;      // it

  // Whether `other` is the same collective, or the other end of this message.
  bool fits(const Communication& other) const {
    return use == other.use && what == other.what && hop == other.hop && (!hop || sends != other.sends);
  }
};
std::vector<Communication> communications_of(const Program& program, const UnitTable& units);

// `ranks` has the program of each rank of the mesh; many ranks usually share one. If they do not fit
// together, throws an Error(peer) that names two ranks and what each of them is in.
void match(const std::vector<const std::vector<Communication>*>& ranks, const comm::Mesh& mesh);

// The same for the programs that the ranks of a world have compiled; `mine` is this rank's. Collective.
void match_programs(comm::World& world, const comm::Mesh& mesh, const std::vector<Communication>& mine);

}  // namespace zeno::zero
