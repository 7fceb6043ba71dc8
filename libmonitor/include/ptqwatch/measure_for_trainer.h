#ifndef PTQWATCH_MEASURE_FOR_TRAINER_H_
#define PTQWATCH_MEASURE_FOR_TRAINER_H_

#include <memory>
#include <vector>

#include "ptqwatch/config.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/options.h"
#include "ptqwatch/subject.h"

namespace ptqwatch {

/// Whether a Monitor has started this process to measure (MonitorOptions::process).
PTQWATCH_EXPORT bool IsMeasuringProcess();

/// Measures for the trainer that has started this process. Call it in main, and return what it
/// returns. It ends this process when the trainer ends, whatever the trainer's end, or stops its
/// monitor.
///
/// `subject` is the trainer's: the same tensors by name, shape and dtype, the same losses and
/// batches. Its live tensors are not read: the weights are those that the trainer copies to memory
/// which both share, and so is the optimizer. `options` are the trainer's, too; `run_dir`, `rank`
/// and `ranks` are taken from it, and `serve` and `process` are ignored. `on_alert` and the
/// exporters are called in this process.
///
/// Ignores SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, which are meant for the trainer, and is
/// the first process to go if memory runs out. If no monitor can be created, the trainer's has the
/// reason (Monitor::creation_status). Returns 1, with a log line, in a process that no Monitor has
/// started.
PTQWATCH_EXPORT int MeasureForTrainer(std::unique_ptr<Subject> subject, MonitorOptions options,
                                      std::vector<std::unique_ptr<Exporter>> exporters = {});

}  // namespace ptqwatch

#endif  // PTQWATCH_MEASURE_FOR_TRAINER_H_
