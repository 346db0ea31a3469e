// How often to checkpoint: a pure function of what a checkpoint costs and how
// often workers fail. Called by the iterator after each save.
#ifndef GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_INTERVAL_H_
#define GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_INTERVAL_H_

namespace gavel {

inline constexpr double kCheckpointIntervalMin_s = 10;
inline constexpr double kCheckpointIntervalMax_s = 1800;

// Seconds between two checkpoints at which the time lost is least: sqrt(2 *
// stall_s * failure_interval_s), within the bounds above. `stall_s`: how long
// one holds training up. `failure_interval_s`: mean time between failures of
// one worker; a job fails when any of `world_size` workers does. A value that
// is not finite or negative counts as the least (a cost) or greatest (a time
// without failures). Source: J. W. Young, "A first order approximation to the
// optimum checkpoint interval", CACM 17(9), 1974, equation 8; J. T. Daly, "A
// higher order estimate of the optimum checkpoint interval", FGCS 22, 2006,
// whose further terms matter only when a stall is not small against the time
// between failures.
double CheckpointInterval_s(double stall_s, double failure_interval_s,
                            int world_size);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_CHECKPOINT_INTERVAL_H_
