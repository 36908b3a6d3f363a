"""Reads a folder of event files with the real TensorBoard and prints what it found: tags, number of points, last value.

  python3 -m venv /tmp/tb && /tmp/tb/bin/pip install tensorboard
  /tmp/tb/bin/python tools/check_tensorboard.py RUN/tensorboard

Exits with 1 when a file is damaged or holds nothing.
"""

import glob
import os
import sys

from tensorboard.backend.event_processing import event_accumulator
from tensorboard.compat.tensorflow_stub import errors
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
from tensorboard.util import tensor_util


def count_records(path):
    """The higher readers end quietly at a damaged record; this one raises DataLossError."""
    reader = PyRecordReader_New(path)
    count = 0
    try:
        while True:
            reader.GetNext()
            count += 1
    except errors.OutOfRangeError:
        return count


def main(folder):
    files = sorted(glob.glob(os.path.join(folder, "*tfevents*")))
    for path in files:
        print(f"{path}: {count_records(path)} events, {os.path.getsize(path)} bytes")
    if not files:
        print(f"{folder}: no event files")
        return 1
    accumulator = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    tags = accumulator.Tags()
    for tag in tags["scalars"]:
        points = accumulator.Scalars(tag)
        print(f"  {tag}: {len(points)} points, last {points[-1].value} at step {points[-1].step}, {points[-1].wall_time:.2f}")
    for tag in tags["tensors"]:
        last = accumulator.Tensors(tag)[-1]
        print(f"  {tag}: {tensor_util.make_ndarray(last.tensor_proto)!r} at step {last.step}")
    return 0 if tags["scalars"] or tags["tensors"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
