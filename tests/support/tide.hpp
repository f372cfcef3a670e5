/// One small training step by hand, every figure of which can be checked on paper.
#pragma once

#include "support/hand_step.hpp"

namespace tidemark::test {

/// Two layers; the first drops `mid` and is recomputed. Levels are those after each event.
///
///   op      a forward        b forward   loss   b backward       a recompute   a backward              sgd
///   ns      0          10    10     20   20 25  25         45    45        55  55               75     75 78
///   +-      +mid  +h  -mid   +k    +y    +l     +gh  -k -y -l    +mid          +gw  -mid -gh -h        -gw
///   level   140  160  130    160   165   166    186  156 151 150 180           280  250  230 210       110
inline HandStep small_tide() {
  HandStep made;
  made.initial("w", 100).is(Category::parameter).layer("layers.0");
  made.initial("x", 10).is(Category::input);
  made.op("layers.0.a", 10).op_layer("layers.0").flops(7, 2);
  made.alloc("mid", 30).layer("layers.0").alloc("h", 20).layer("layers.0").run({"w", "x", "mid", "h"}).free("mid");
  made.op("layers.1.b", 10).op_layer("layers.1").flops(11);
  made.alloc("k", 30).layer("layers.1").alloc("y", 5).layer("layers.1").run({"h", "k", "y"});
  made.op("loss", 5).phase(Phase::loss).flops(0, 3);
  made.alloc("l", 1).run({"y", "l"});
  made.op("layers.1.b", 20).phase(Phase::backward).op_layer("layers.1").flops(22);
  made.alloc("gh", 20).is(Category::temporary).layer("layers.0").run({"k", "y", "l", "gh", "h"});
  made.free("k").free("y").free("l");
  made.op("layers.0.a", 10).phase(Phase::recompute).op_layer("layers.0").flops(7, 2);
  made.alloc("mid", 30).layer("layers.0").run({"w", "x", "mid"});
  made.op("layers.0.a", 20).phase(Phase::backward).op_layer("layers.0").flops(14);
  made.alloc("gw", 100).is(Category::gradient).layer("layers.0").run({"w", "mid", "gh", "gw"});
  made.free("mid").free("gh").free("h");
  made.op("sgd", 3).phase(Phase::optimizer);
  made.run({"w", "gw"}).free("gw");
  return made;
}

}  // namespace tidemark::test
