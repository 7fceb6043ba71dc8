#include <string>

#include "report.pb.h"

// Writes a message, reads it back, and returns its full name and author.
std::string WriteAndRead() {
  trainer::Report report, copy;
  report.set_author("the trainer");
  if (!copy.ParseFromString(report.SerializeAsString())) return "";
  return copy.GetDescriptor()->full_name() + " of " + copy.author();
}
