// Work that may hang (a dead disk) and must not block the caller: diagnostics after an error above all.
#pragma once

#include <chrono>
#include <functional>

namespace zeno {

// Runs `work` on a separate thread and waits for it, but not longer than this, and only until `give_up`,
// which is called several times a second, returns true. False: it is still running and is abandoned; so it
// must own all that it uses. Rethrows an exception of the work if it comes in time.
bool finishes_within(std::chrono::milliseconds longest, std::function<void()> work,
                     const std::function<bool()>& give_up = {});

}  // namespace zeno
