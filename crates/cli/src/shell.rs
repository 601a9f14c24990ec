//! `distlock completions` and `distlock man`.

use clap_complete::Shell;

use crate::exit::Failure;
use crate::keys::show;

/// Arguments of `completions`.
#[derive(clap::Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `man`.
#[derive(clap::Args, Debug)]
pub struct ManArgs {
    /// The command of the page, such as `run`. Default: the page of distlock
    command: Option<String>,
}

/// Prints the completions. `all`: the whole command line.
///
/// # Errors
///
/// [`Failure::System`] if they cannot be written.
pub fn completions(args: &CompletionsArgs, all: &clap::Command) -> Result<u8, Failure> {
    let mut text = Vec::new();
    // `clap_complete` also offers hidden subcommands.
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let command = clap::Command::new("distlock").version(env!("CARGO_PKG_VERSION"));
    let mut command = command.args(all.get_arguments().cloned()).subcommands(shown);
    clap_complete::generate(args.shell, &mut command, "distlock", &mut text);
    print(&text)
}

/// Prints the man page. `command`: the whole command line.
///
/// # Errors
///
/// [`Failure::Usage`] for an unknown command, [`Failure::System`] if the page cannot be written.
pub fn man(args: &ManArgs, mut command: clap::Command) -> Result<u8, Failure> {
    // Gives subcommands their names (`distlock-run`) and the global options.
    command.build();
    let page = match &args.command {
        None => command,
        Some(name) => {
            let found = command.find_subcommand(name).cloned();
            found.ok_or_else(|| Failure::Usage(format!("there is no command {name:?}; `distlock help` lists them")))?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    print(&text)
}

fn print(text: &[u8]) -> Result<u8, Failure> {
    show::print(&String::from_utf8_lossy(text))?;
    Ok(0)
}
