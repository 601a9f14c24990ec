//! The command `distlock`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

mod args;
mod bench;
mod connect;
mod doctor;
mod exit;
mod force;
mod inspect;
mod keys;
mod list;
mod run;
mod shell;
mod top;

use args::{Cli, Command};
use exit::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Clap prints its help only if no variable such as DISTLOCK_URL is set.
        Err(error) if error.kind() == ErrorKind::MissingSubcommand => {
            exit::say(format_args!("{}", Cli::command().render_help()));
            return ExitCode::from(exit::USAGE);
        }
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 });
        }
    };
    match start(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            exit::say(format_args!("distlock: {failure}"));
            ExitCode::from(failure.code())
        }
    }
}

/// Runs the command on a runtime with one thread, so that `run` and its guard are small. Only `bench` needs more.
fn start(cli: Cli) -> Result<u8, Failure> {
    let mut builder = match cli.command {
        Command::Bench(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = builder.enable_all().build()?;
    let outcome = runtime.block_on(dispatch(cli));
    // A lookup of a host's name may still block a thread.
    runtime.shutdown_background();
    outcome
}

async fn dispatch(cli: Cli) -> Result<u8, Failure> {
    let Cli { target, command } = cli;
    match command {
        Command::Run(args) => run::main(args, &target).await,
        Command::Inspect(args) => inspect::main(args, &target).await,
        Command::List(args) => list::main(args, &target).await,
        Command::Top(args) => top::main(args, &target).await,
        Command::Unlock(args) => force::unlock(args, &target).await,
        Command::Dequeue(args) => force::dequeue(args, &target).await,
        Command::Doctor(args) => doctor::main(args, &target).await,
        Command::Bench(args) => bench::main(args, &target).await,
        Command::Completions(args) => shell::completions(&args, &Cli::command()),
        Command::Man(args) => shell::man(&args, Cli::command()),
        Command::GuardGroup(args) => run::guard::main(args).await,
    }
}
