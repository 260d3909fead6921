// SPDX-License-Identifier: Apache-2.0
//
// The oracle: what must hold in every schedule, whatever the faults. It knows each job's ranges and instances, sees every byte placed at
// a target and every touch of local memory, and is told each end. What it checks is listed in oracle.cpp at the checks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/job.h"
#include "sim/network.h"

namespace tidewire::sim {

struct Process;
class Cluster;

// Ways to break a rule on purpose, to see that the oracle notices.
struct Mutations {
  bool confirm_revocation_without_cutting = false;
  bool acknowledge_before_placing = false;
  bool notify_before_data = false;
  bool touch_local_memory_after_down = false;
  bool accept_any_instance = false;
  bool skip_revocation = false;
  bool notify_any_instance = false;
  bool forget_duplicates = false;  // of notifications
  bool ignore_ranges = false;      // the target places outside its regions
};

// What is expected of one transfer.
enum class Expect { kGood, kNotRegistered, kPermissionDenied, kEither };

struct SimJob : engine::Job::Owner, std::enable_shared_from_this<SimJob> {
  uint32_t number = 0;
  engine::JobPtr job;
  std::shared_ptr<Process> owner;
  uint32_t target = 0;
  uint64_t offset = 0;           // of its ranges at the target, from the base of the instance
  std::vector<Expect> expect;
  std::shared_ptr<Process> submitted_to;  // the instance that its addresses belong to
  std::vector<bool> verified;
  uint64_t notify_number = 0;
  std::shared_ptr<Process> placed_in;  // the instance that got its first bytes
  bool notify = false;
  bool must_complete = false;    // everything is well for its whole life
  bool finished = false;
  bool canceled = false;
  bool clean = true;             // no transfer to a bad range
  Nanos canceled_at = 0;
  Nanos finished_at = 0;
  uint64_t delivered = 0;        // notifications
  bool notify_settled = false;
  void job_done(engine::Job&) override {}

  bool write() const { return job->opcode == transport::Opcode::kWrite; }
  bool late_bytes_allowed() const { return job->error.message().find("late bytes") != std::string::npos; }
  // Whether the range lies within the union of its remote (or local) ranges.
  bool covers(uint64_t address, uint64_t length, bool local) const;
};
using SimJobPtr = std::shared_ptr<SimJob>;

inline SimJob& sim_job(const engine::JobPtr& job) { return *std::static_pointer_cast<SimJob>(job->owner.lock()); }

class Oracle {
 public:
  Oracle(World& world, Network& network, Cluster& cluster) : world_(world), network_(network), cluster_(cluster) {}

  void submitted(const SimJobPtr& job) { jobs_.push_back(job); }
  // Before the bytes are placed at `address` of the target.
  void placing(SimJob& job, const std::shared_ptr<Process>& target, uint64_t address, uint64_t length);
  // Before a slice reads or writes local memory.
  void touching(SimJob& job, uint64_t address, uint64_t length);
  // After each event that may have completed transfers.
  void look(SimJob& job);
  void finished(SimJob& job);
  uint64_t next_notification() { return ++notifications_; }
  void notified(uint32_t job, const std::shared_ptr<Process>& target);
  void notify_settled(SimJob& job, const Status& status);
  // At the end of a schedule.
  void closing();

  uint64_t completed = 0, failed = 0, revocations = 0, retries = 0;

 private:
  void check_transfers(SimJob& job);
  void check_time(SimJob& job);
  void check_reason(SimJob& job);
  bool withdrawn(const SimJob& job, uint64_t transfer) const;
  std::string name(const SimJob& job) const;

  World& world_;
  Network& network_;
  Cluster& cluster_;
  std::vector<SimJobPtr> jobs_;
  uint64_t notifications_ = 0;
  std::map<std::pair<const Process*, const Process*>, uint64_t> last_notified_;  // (receiver, sender) → number
};

}  // namespace tidewire::sim
