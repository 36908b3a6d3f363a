// Work that may hang (a dead disk) and must not block the caller: diagnostics after an error above all.
#pragma once

#include <chrono>
#include <functional>

namespace zeno {

// Runs `work` on a thread of its own and waits for it, but not for longer than this, and not once `give_up`,
// which is asked several times a second, says so. False: it is still under way and is left behind; so it must
// own all that it uses. An exception of the work comes back here when it comes in time.
bool finishes_within(std::chrono::milliseconds longest, std::function<void()> work,
                     const std::function<bool()>& give_up = {});

}  // namespace zeno
