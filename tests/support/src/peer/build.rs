//! Builds the agents. Packages of their registries are fetched into `interop/target`, once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use super::Library;

/// Builds the agent of this library, unless it is already built, and returns the command that starts it. Many threads
/// and processes may call this at once: one of them builds.
pub fn build(library: Library) -> Vec<PathBuf> {
    let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop");
    let interop = interop.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", interop.display()));
    let sources = interop.join(library.folder());
    let output = interop.join("target").join(library.folder());
    fs::create_dir_all(&output).expect("a directory for the agent");
    // Closing the file releases the lock.
    let lock = File::create(interop.join(format!("target/.{}.lock", library.folder()))).expect("a lock file");
    lock.lock().expect("the lock of the agent's build");
    let stamp = output.join(".built");
    let is_built = fs::metadata(&stamp).and_then(|stamp| stamp.modified()).is_ok_and(|at| at > newest(&sources));
    if !is_built {
        let began = SystemTime::now();
        let _ = fs::remove_file(&stamp);
        make(library, &sources, &output);
        File::create(&stamp).and_then(|stamp| stamp.set_modified(began)).expect("the mark of a finished build");
    }
    match library {
        Library::Redsync => vec![output.join("agent")],
        Library::Redlock => vec!["node".into(), output.join("agent.js")],
        Library::RedisPy => vec![output.join("bin/python"), sources.join("agent.py")],
        Library::Rslock => vec![output.join("debug/distlock-interop-rslock")],
    }
}

fn make(library: Library, sources: &Path, output: &Path) {
    match library {
        Library::Redsync => {
            run(Command::new("go").current_dir(sources).args(["build", "-o"]).arg(output.join("agent")).arg("."));
        }
        Library::Redlock => {
            for file in ["package.json", "package-lock.json", "agent.js"] {
                fs::copy(sources.join(file), output.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            }
            run(Command::new("npm").current_dir(output).args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]));
        }
        Library::RedisPy => {
            run(Command::new("python3").args(["-m", "venv"]).arg(output));
            let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"];
            run(Command::new(output.join("bin/python")).current_dir(sources).args(install));
        }
        Library::Rslock => {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            cargo.current_dir(sources).args(["build", "--quiet", "--locked", "--target-dir"]).arg(output);
            // Settings of the tests' own build do not apply.
            run(cargo.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR"));
        }
    }
}

fn run(command: &mut Command) {
    let done = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (said, complained) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?} failed:\n{said}{complained}");
}

/// When the newest file here was modified.
fn newest(path: &Path) -> SystemTime {
    let own = fs::metadata(path).and_then(|data| data.modified()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let Ok(inside) = fs::read_dir(path) else { return own };
    inside.flatten().map(|entry| newest(&entry.path())).fold(own, SystemTime::max)
}
