//! The command line.

use crate::connect::Target;
use crate::{bench, doctor, force, inspect, list, run, shell, top};

/// Printed after the help, and in the man page.
const EXIT_STATUS: &str = "\
Exit status:
  0     success; of `run`: the status of CMD, or 128 + N if signal N ended CMD
  1     `doctor` found something; `bench` had errors; `inspect`, `unlock`, `dequeue`: the lock is not held
  64    wrong arguments
  69    no server can be reached, or none answers
  70    a server refused a command, for example because this login lacks a right
  71    the operating system refused something
  75    the lock stayed busy for the whole wait (--wait)
  76    the lock was lost while CMD ran, and CMD was ended
  126   CMD cannot be executed
  127   CMD does not exist";

/// Distributed locks over Redis or Valkey: run a command under a lock, see who holds which lock, check a server.
#[derive(clap::Parser)]
#[command(name = "distlock", version, after_help = EXIT_STATUS)]
pub struct Cli {
    #[command(flatten)]
    pub target: Target,
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Run a command while holding a lock
    ///
    /// CMD runs in a process group of its own, without a shell. Signals are passed on to the group. If the lock is
    /// lost, the group gets TERM, and KILL after the grace period. The lock is released when every process of the group
    /// has ended. CMD has the environment of `distlock`, and HELD_LOCK_NAME, HELD_LOCK_OWNER and, with --flavour
    /// fenced, HELD_LOCK_TOKEN. `distlock inspect` shows DISTLOCK_LABEL, if it is set, with the holder.
    #[command(after_help = EXIT_STATUS)]
    Run(run::Args),
    /// Show everything about one lock: holders, leases, queue, permits, counters
    Inspect(inspect::Args),
    /// List the locks on all primaries
    List(list::Args),
    /// Watch held and contended locks live
    ///
    /// AGE is the time since `top` first saw this holder, so it begins at 0 when `top` starts. WAITERS is the length of
    /// a fair lock's queue; for other locks, the number of processes that wait. CHANGES/S counts changes of holder
    /// between two looks, at most one for each look.
    Top(top::Args),
    /// Free a held lock by force
    ///
    /// The holder is not asked, and another owner may acquire the lock at once. The holder learns of the loss at its
    /// next renewal, a third of the lease. A holder with an explicit lease does not renew, and does not learn of it.
    ///
    /// With --flavour permits: deletes all permits of the name and their number. Acquires wait until a number is set
    /// again, as the next `distlock run --permits` does. Until the old holders learn of the loss, more commands than
    /// this number may run.
    Unlock(force::UnlockArgs),
    /// Remove a waiter from the queue of a fair lock
    Dequeue(force::DequeueArgs),
    /// Find what breaks locks on these servers
    Doctor(doctor::Args),
    /// Measure locks on these servers
    Bench(bench::Args),
    /// Print the completions of a shell
    Completions(shell::CompletionsArgs),
    /// Print a man page
    Man(shell::ManArgs),
    /// The guard of a process group; `run` starts it
    #[command(hide = true)]
    GuardGroup(run::guard::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
