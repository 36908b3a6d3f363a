#include "zeno/train/saving/output_room.h"

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/log.h"
#include "zeno/device/ledger.h"
#include "zeno/train/saving/checkpoint_state.h"
#include "zeno/train/saving/resume.h"

namespace zeno::train {
namespace {

size_t checkpoint_bytes(const zero::Engine& engine) {
  size_t bytes = 0;
  for (const checkpoint::StateKind& state : saved_states(engine))
    bytes += size_t(engine.units().trainable_elements()) * size_of(state.dtype);
  return bytes;
}

}  // namespace

void check_output_room(const config::RunConfig& run, const zero::Engine& engine, size_t result) {
  const size_t room = size_t(free_space(run.out));
  require(result <= room, ErrorKind::io,
          "[train] --out {}: the result takes {}, but only {} are free there; free some space, or choose "
          "another --out",
          run.out, format_bytes(result), format_bytes(room));
  if (run.save_every == 0) return;
  // While a checkpoint is written, there is one more than are kept.
  const size_t one = checkpoint_bytes(engine),
               there = checkpoint::list_checkpoints(checkpoints_of(run)).size(),
               kept = size_t(run.keep_last) + 1, more = kept > there ? kept - there : 1;
  if (result + more * one > room) {
    log_warning(
        "[train] --out {}: {} checkpoint{} of {} and the result take {}, but only {} are free there; free "
        "some space, or keep fewer (--keep-last)",
        run.out, more, more == 1 ? "" : "s", format_bytes(one), format_bytes(result + more * one),
        format_bytes(room));
  }
}

}  // namespace zeno::train
