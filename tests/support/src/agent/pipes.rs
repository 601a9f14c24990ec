//! The agent's process: its command line, input and output.

use super::*;

/// For a Java machine that starts fast and does not live long.
pub(super) const QUICK: [&str; 2] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

pub(super) type Log = Arc<Mutex<VecDeque<String>>>;

/// The next line of the agent. Lines of the Java machine itself (warnings) go to the log.
pub(super) async fn next_answer(out: &mut Lines<BufReader<ChildStdout>>, log: &Log) -> Option<String> {
    loop {
        let line = out.next_line().await.ok().flatten()?;
        if line.starts_with('{') {
            return Some(line);
        }
        keep(log, line);
    }
}

pub(super) async fn write_requests(mut input: ChildStdin, mut queue: mpsc::UnboundedReceiver<String>) {
    while let Some(mut line) = queue.recv().await {
        line.push('\n');
        if input.write_all(line.as_bytes()).await.is_err() || input.flush().await.is_err() {
            return;
        }
    }
}

pub(super) async fn keep_log(mut lines: Lines<BufReader<ChildStderr>>, log: Log) {
    while let Ok(Some(line)) = lines.next_line().await {
        keep(&log, line);
    }
}

fn keep(log: &Log, line: String) {
    const KEPT: usize = 200;
    static SHOW: LazyLock<bool> = LazyLock::new(|| std::env::var_os("DISTLOCK_AGENT_LOG").is_some());
    if *SHOW {
        eprintln!("[agent] {line}");
    }
    let mut log = log.lock();
    if log.len() == KEPT {
        log.pop_front();
    }
    log.push_back(line);
}

pub(super) fn joined(log: &Log) -> String {
    log.lock().iter().cloned().collect::<Vec<_>>().join("\n")
}

pub(super) fn command(classpath: &Classpath, options: &AgentOptions) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(build::tool("java"));
    // Without `-XX:-UsePerfData`, Java writes a file to /tmp for monitoring tools, which many concurrent starts may
    // find locked.
    command.arg(format!("-Xmx{}m", options.heap_mb)).args(["-Xshare:auto", "-XX:-UsePerfData"]).args(&options.jvm);
    if !options.full_speed {
        command.args(QUICK);
    }
    if let Some(archive) = &classpath.archive {
        command.arg(format!("-XX:SharedArchiveFile={}", archive.display()));
    }
    command.args(["-cp", classpath.as_str(), "distlock.interop.Agent"]);
    command.envs(options.variables.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}
