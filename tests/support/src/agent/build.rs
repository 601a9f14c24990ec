//! Building the agent with Maven, once a version.

use super::*;

pub(super) fn tool(name: &str) -> PathBuf {
    match std::env::var_os("JAVA_HOME") {
        Some(home) if name == "java" => PathBuf::from(home).join("bin/java"),
        _ => PathBuf::from(name),
    }
}

pub(super) fn build(version: &str) -> Classpath {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop");
    let sources = sources.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", sources.display()));
    let target = sources.join("target");
    let output = target.join(version);
    let stamp = output.join(".built");
    fs::create_dir_all(&target).expect("a directory for the agent");

    // Other test processes may be at it: one builds, the rest wait and find it built. Freed when the file is closed.
    let lock = File::create(target.join(format!(".{version}.lock"))).expect("a lock file for the agent's build");
    lock.lock().expect("the lock of the agent's build");
    let newest = newest(&sources.join("pom.xml")).max(newest(&sources.join("src")));
    if !fs::metadata(&stamp).and_then(|stamp| stamp.modified()).is_ok_and(|built| built > newest) {
        let began = SystemTime::now();
        let _ = fs::remove_file(&stamp);
        let _ = fs::remove_dir_all(output.join("lib"));
        // Without the network if what is needed has been fetched before.
        let offline = maven(&sources, version, &["-o"]);
        if !offline.status.success() {
            let online = maven(&sources, version, &[]);
            let said = String::from_utf8_lossy(&online.stdout);
            let complained = String::from_utf8_lossy(&online.stderr);
            assert!(online.status.success(), "the agent did not build ({NEEDS}):\n{said}{complained}");
        }
        File::create(&stamp).and_then(|stamp| stamp.set_modified(began)).expect("the mark of a finished build");
    }
    let entries = format!("{}:{}", output.join("agent.jar").display(), output.join("lib/*").display());
    Classpath { version: version.to_owned(), entries }
}

fn maven(sources: &Path, version: &str, more: &[&str]) -> Output {
    let mut command = Command::new(tool("mvn"));
    command.current_dir(sources).args(["-q", "-B"]).args(more).arg("package");
    command.arg(format!("-Dredisson.version={version}")).stdin(Stdio::null());
    command.output().unwrap_or_else(|e| panic!("mvn: {e}; {NEEDS}"))
}

/// When the youngest file here was last written.
fn newest(path: &Path) -> SystemTime {
    let own = fs::metadata(path).and_then(|data| data.modified()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let Ok(inside) = fs::read_dir(path) else {
        return own;
    };
    inside.flatten().map(|entry| newest(&entry.path())).fold(own, SystemTime::max)
}
