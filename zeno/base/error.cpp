#include "zeno/base/error.h"

namespace zeno {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::internal:
      return 1;
    case ErrorKind::usage:
      return 2;
    case ErrorKind::data:
      return 3;
    case ErrorKind::memory:
      return 4;
    case ErrorKind::io:
      return 5;
    case ErrorKind::peer:
      return 6;
  }
  return 1;
}

}  // namespace zeno
