//! Builds the agent with Maven, once for each version.

use std::io::{BufRead as _, Write as _};
use std::sync::mpsc::RecvTimeoutError;

use super::pipes::QUICK;
use super::*;
use crate::RedisServer;
use crate::reaper::Adopted;

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
    let (stamp, laid_out) = (output.join(".built"), output.join(".laid-out"));
    let archive = output.join("agent.jsa");
    fs::create_dir_all(&target).expect("a directory for the agent");

    let entries = format!("{}:{}", output.join("agent.jar").display(), output.join("lib/*").display());

    // One test process builds; others wait and find the agent built. Closing the file releases the lock.
    let lock = File::create(target.join(format!(".{version}.lock"))).expect("a lock file for the agent's build");
    lock.lock().expect("the lock of the agent's build");
    let newest = newest(&sources.join("pom.xml")).max(newest(&sources.join("src")));
    if !fs::metadata(&stamp).and_then(|stamp| stamp.modified()).is_ok_and(|built| built > newest) {
        let began = SystemTime::now();
        let _ = fs::remove_file(&stamp);
        let _ = fs::remove_dir_all(output.join("lib"));
        let _ = fs::remove_file(&laid_out);
        // Builds without the network if the dependencies have been fetched before.
        let offline = maven(&sources, version, &["-o"]);
        if !offline.status.success() {
            let online = maven(&sources, version, &[]);
            let said = String::from_utf8_lossy(&online.stdout);
            let complained = String::from_utf8_lossy(&online.stderr);
            assert!(online.status.success(), "the agent did not build ({NEEDS}):\n{said}{complained}");
        }
        File::create(&stamp).and_then(|stamp| stamp.set_modified(began)).expect("the mark of a finished build");
    }
    // An archive that could not be made is not tried again, because it only makes starts faster.
    if !laid_out.exists() {
        let _ = fs::remove_file(&archive);
        lay_out(&entries, &archive);
        File::create(&laid_out).expect("the mark of an archive");
    }
    Classpath { version: version.to_owned(), entries, archive: archive.exists().then_some(archive) }
}

/// Runs an agent for a few operations, so that the Java machine archives the classes that it loaded. Other agents map
/// the archive, and start in half the time. If this fails, agents start without an archive.
fn lay_out(entries: &str, archive: &Path) {
    let server = RedisServer::start();
    let mut command = Command::new(tool("java"));
    command.arg(format!("-XX:ArchiveClassesAtExit={}", archive.display())).args([
        "-XX:-UsePerfData",
        QUICK[0],
        QUICK[1],
    ]);
    command.args(["-cp", entries, "distlock.interop.Agent", "--url", &server.url(), "--mode", "single"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut agent = command.spawn().unwrap_or_else(|e| panic!("java: {e}; {NEEDS}"));
    let _adopted = Adopted::new(agent.id());
    let mut requests = String::new();
    for (n, flavour) in ["reentrant", "fair", "read", "write", "spin", "fenced"].into_iter().enumerate() {
        for (at, op) in ["lock", "try_lock", "unlock", "unlock"].into_iter().enumerate() {
            let request = json!({"id": 4 * n + at, "op": op, "flavour": flavour, "name": flavour, "wait_ms": 10});
            requests += &format!("{request}\n");
        }
    }
    let (mut input, output) = (agent.stdin.take().expect("piped"), agent.stdout.take().expect("piped"));
    // A failure shows as a missing reply.
    let _ = input.write_all(requests.as_bytes());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let answers = std::io::BufReader::new(output).lines().map_while(Result::ok);
        answers.filter(|line| line.starts_with('{')).try_for_each(|_| tell.send(()))
    });
    let all = (0..=requests.lines().count()).all(|_| told.recv_timeout(READY_WITHIN).is_ok());
    // The agent ends when its input ends.
    drop(input);
    if !all || told.recv_timeout(READY_WITHIN) != Err(RecvTimeoutError::Disconnected) {
        let _ = agent.kill();
    }
    let _ = agent.wait();
}

fn maven(sources: &Path, version: &str, more: &[&str]) -> Output {
    let mut command = Command::new(tool("mvn"));
    command.current_dir(sources).args(["-q", "-B"]).args(more).arg("package");
    command.arg(format!("-Dredisson.version={version}")).stdin(Stdio::null());
    command.output().unwrap_or_else(|e| panic!("mvn: {e}; {NEEDS}"))
}

/// Time of the latest change of a file at or below this path.
fn newest(path: &Path) -> SystemTime {
    let own = fs::metadata(path).and_then(|data| data.modified()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let Ok(inside) = fs::read_dir(path) else {
        return own;
    };
    inside.flatten().map(|entry| newest(&entry.path())).fold(own, SystemTime::max)
}
