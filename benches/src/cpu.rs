//! Processor time of processes: what is left of a comparison when others use the machine too.

/// Seconds of processor time of all threads that a process has now. Those that ended are not in it.
pub fn seconds(pid: u32) -> f64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0.0 };
    let nanos = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0)
    };
    threads.flatten().map(|thread| nanos(thread.path())).sum::<u64>() as f64 / 1e9
}

/// Of several processes together.
pub fn seconds_of(pids: &[u32]) -> f64 {
    pids.iter().map(|pid| seconds(*pid)).sum()
}
