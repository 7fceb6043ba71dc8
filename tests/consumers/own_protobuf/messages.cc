#include <string>

#include "report.pb.h"

// The full name and the author of a message that was written and read again.
std::string WriteAndRead() {
  trainer::Report report, copy;
  report.set_author("the trainer");
  if (!copy.ParseFromString(report.SerializeAsString())) return "";
  return copy.GetDescriptor()->full_name() + " of " + copy.author();
}
