// What a program includes that uses Zeno as a library. Where to start:
//   train::train     a whole run, as `zeno train` does it
//   train::Trainer   the same run step by step, in a loop of your own (examples/own_loop.cpp)
//   zero::Engine     ZeRO for a model of your own, without files (examples/own_model.cpp)
// Everything else is in the header of its name; docs/architecture.md says what each folder holds.
#pragma once

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/rng.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/checkpoint/safetensors_folder.h"
#include "zeno/comm/world.h"
#include "zeno/config/config_parser.h"
#include "zeno/data/tokenizer.h"
#include "zeno/generate/generator.h"
#include "zeno/kernels/activation.h"
#include "zeno/kernels/attention.h"
#include "zeno/kernels/elementwise.h"
#include "zeno/kernels/matmul.h"
#include "zeno/kernels/norm.h"
#include "zeno/model/export.h"
#include "zeno/model/init.h"
#include "zeno/model/layers.h"
#include "zeno/nn/attention.h"
#include "zeno/nn/block.h"
#include "zeno/nn/embedding.h"
#include "zeno/nn/linear.h"
#include "zeno/nn/lm_head.h"
#include "zeno/nn/mlp.h"
#include "zeno/nn/norm.h"
#include "zeno/train/trainer.h"
#include "zeno/zero/engine.h"
