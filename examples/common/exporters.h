#ifndef PTQWATCH_EXAMPLES_EXPORTERS_H_
#define PTQWATCH_EXAMPLES_EXPORTERS_H_

#include <memory>
#include <string>
#include <vector>

#include "ptqwatch/exporter.h"
#include "trainer_flags.h"

namespace ptqwatch::examples {

struct Exporters {
  std::vector<std::unique_ptr<Exporter>> list;
  std::string addresses;  ///< a line for each server, as the examples print them
};

/// Reports are served to Prometheus and gRPC clients, as --http and --grpc say, and printed. A
/// server whose port is in use is left out, which the monitor says. Throws UsageError for an
/// address that cannot be.
Exporters MakeExporters(const TrainerFlags& flags);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_EXAMPLES_EXPORTERS_H_
