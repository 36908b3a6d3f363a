// Proves before the first step that the programs of all ranks fit together: every collective has its
// partners, in one order, and no order of arrival can block.
//
// Each rank issues its collectives one after the other, in the order of its program (a GPU's hosts do just
// that; lanes of a CPU run ahead of it and never behind). Walked like this, all programs must come to their
// end: then there is an order of all collectives that suits every rank, and whoever runs ahead waits for
// nobody who waits for it.
#pragma once

#include <string>
#include <vector>

#include "zeno/comm/world.h"
#include "zeno/zero/program/program.h"

namespace zeno::zero {

// A collective, or one end of a message, as the others have to know it.
struct Communication {
  CommUse use;
  std::string what;        // "reduce blocks.3 g5[0..2)+ over inner"
  std::optional<Hop> hop;  // of a message: between two of the group
  bool sends = false;      // it

  // Is this what the other takes part in, at the other end of a message?
  bool fits(const Communication& other) const {
    return use == other.use && what == other.what && hop == other.hop && (!hop || sends != other.sends);
  }
};
std::vector<Communication> communications_of(const Program& program, const UnitTable& units);

// `ranks` of the mesh have these programs, several of them mostly the same one. Throws Error(peer) that names
// two ranks and what they are in when their programs do not fit.
void match(const std::vector<const std::vector<Communication>*>& ranks, const comm::Mesh& mesh);

// The same for the programs that the ranks of a world have compiled. Collective.
void match_programs(comm::World& world, const comm::Mesh& mesh, const std::vector<Communication>& mine);

}  // namespace zeno::zero
