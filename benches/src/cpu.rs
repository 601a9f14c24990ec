//! Processor time of processes. It stays comparable when other programs use the machine too.

/// Returns the processor time of a process's current threads, in seconds. Threads that have ended are not included.
pub fn seconds(pid: u32) -> f64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0.0 };
    let nanos = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0)
    };
    threads.flatten().map(|thread| nanos(thread.path())).sum::<u64>() as f64 / 1e9
}

/// Returns the sum over several processes.
pub fn seconds_of(pids: &[u32]) -> f64 {
    pids.iter().map(|pid| seconds(*pid)).sum()
}
