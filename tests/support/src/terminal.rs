//! A program at a pseudo-terminal, whose other end the test reads and writes.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::reaper::{self, Adopted};
use crate::wait::until;

/// A program in a session of its own, with this terminal. Dropping it kills the program.
#[derive(Debug)]
pub struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// Reads the screen, until no process has the terminal any more.
    reader: JoinHandle<()>,
    program: Child,
    adopted: Option<Adopted>,
}

impl Terminal {
    /// Starts a command with these environment variables, at a terminal of 120 x 24. The command ignores no signal,
    /// although this process may.
    pub fn start(command: &[&str], env: &[(&str, &str)]) -> Self {
        Self::open(command, env).unwrap_or_else(|e| panic!("cannot start {command:?} at a terminal: {e}"))
    }

    fn open(command: &[&str], env: &[(&str, &str)]) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        tcsetwinsize(&ours, Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 })?;
        let theirs = ioctl_tiocgptpeer(&ours, flags)?;
        let keyboard = File::from(ours);
        let mut terminal = keyboard.try_clone()?;
        let program = Command::new("setsid")
            .args(["--ctty", "env", "--default-signal"])
            .args(command)
            .envs(env.iter().copied())
            .stdin(theirs.try_clone()?)
            .stdout(theirs.try_clone()?)
            .stderr(theirs)
            .spawn()?;
        let adopted = Some(Adopted::new(program.id()));
        let screen = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&screen);
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading fails when no process has the terminal any more.
            while let Ok(read @ 1..) = terminal.read(&mut buffer) {
                written.lock().push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        Ok(Self { keyboard, screen, reader, program, adopted })
    }

    pub fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap_or_else(|e| panic!("cannot type {keys:?}: {e}"));
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        reaper::signal(self.program.id(), signal);
    }

    /// Everything that was written so far.
    pub fn screen(&self) -> String {
        self.screen.lock().clone()
    }

    /// Waits until this text was written.
    pub async fn shows(&self, text: &str) {
        until(&format!("{text:?} on the screen"), async || self.screen.lock().contains(text)).await;
    }

    /// True if the terminal sends whole lines, as at the start. False in raw mode.
    pub fn is_line_mode(&self) -> bool {
        let modes = tcgetattr(&self.keyboard).unwrap_or_else(|e| panic!("cannot read the terminal's modes: {e}"));
        modes.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end of the program and of every other process that has the terminal. Checks the exit status.
    /// Afterwards, the screen is complete.
    pub async fn ends_with(&mut self, code: i32) {
        let id = self.program.id();
        until("the end of the program", async || reaper::has_ended(id)).await;
        until("the end of the terminal's last process", async || self.reader.is_finished()).await;
        drop(self.adopted.take());
        let status = self.program.wait().unwrap_or_else(|e| panic!("cannot wait for the program: {e}"));
        assert_eq!(status.code(), Some(code), "{}", self.screen());
    }
}

impl Drop for Terminal {
    /// Ends the program of a failed test.
    fn drop(&mut self) {
        if let Some(adopted) = self.adopted.take() {
            println!("the screen of the failed test: {}", self.screen());
            let _ = self.program.kill();
            drop(adopted);
            let _ = self.program.wait();
        }
    }
}
