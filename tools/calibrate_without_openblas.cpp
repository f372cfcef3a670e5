#include "calibrate_measure.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark::cli {

std::vector<MeasuredOp> measure_ops(const MeasureOptions& /*options*/) {
  throw InputError(
      "this build has no kernels to measure: install OpenBLAS (Debian: apt install libopenblas-dev) and build again; "
      "or give times measured elsewhere with --from ops.csv");
}

}  // namespace tidemark::cli
