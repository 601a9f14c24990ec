//! Servers whose time of day the test sets.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use crate::reaper::Folder;
use crate::server::Builder;

/// The time of day of the servers that use this clock. Their monotonic clocks are not changed.
#[derive(Debug)]
pub struct Clock {
    dir: Folder,
    setting: File,
}

impl Clock {
    /// A clock that shows the real time. `None` on systems other than Linux.
    pub fn new() -> Option<Self> {
        if !cfg!(target_os = "linux") {
            crate::skip("servers with a clock of their own: only Linux has them");
            return None;
        }
        Some(Self::make().unwrap_or_else(|e| panic!("no clock for a server: {e}")))
    }

    fn make() -> std::io::Result<Self> {
        let dir = Folder::new();
        std::fs::write(dir.path().join("clock.c"), include_str!("clock.c"))?;
        let mut compiler = Command::new("cc");
        let compiled =
            compiler.current_dir(dir.path()).args(["-shared", "-fPIC", "-O1", "-o", "clock.so", "clock.c"]).status()?;
        if !compiled.success() {
            return Err(std::io::Error::other("cc does not compile clock.c"));
        }
        std::fs::write(dir.path().join("setting"), [0; 16])?;
        let setting = File::options().write(true).open(dir.path().join("setting"))?;
        Ok(Self { dir, setting })
    }

    /// Makes a server use this clock.
    pub fn of(&self, server: Builder) -> Builder {
        let file = |name: &str| self.dir.path().join(name).into_os_string();
        server.env("LD_PRELOAD", &file("clock.so")).env("DISTLOCK_CLOCK", &file("setting"))
    }

    /// Sets the clock to the real time plus `ms` milliseconds. Has no effect on a stopped clock.
    pub fn shift(&self, ms: i64) {
        self.set(0, ms * 1000);
    }

    /// Stops the clock at `micros` microseconds since 1970.
    pub fn stop_at(&self, micros: i64) {
        self.set(8, micros);
    }

    fn set(&self, offset: u64, value: i64) {
        let written = self.setting.write_all_at(&value.to_ne_bytes(), offset);
        written.unwrap_or_else(|e| panic!("a server's clock was not set: {e}"));
    }
}
