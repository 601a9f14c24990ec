//! The command at a pseudo-terminal, whose other end the test reads and writes.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use distlock_support::reaper::{self, Adopted};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::rig::{Bed, until};

/// A program in a session of its own, with this terminal.
pub struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    program: Child,
    adopted: Option<Adopted>,
}

impl Terminal {
    /// Starts a command against this server, at a terminal of 120 x 24.
    pub fn start(bed: &Bed, command: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        tcsetwinsize(&ours, Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        let program = Command::new("setsid")
            .arg("--ctty")
            .args(command)
            .env("DISTLOCK_URL", bed.server.url())
            .env("TERM", "xterm-256color")
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs.try_clone().unwrap())
            .stderr(theirs)
            .spawn()
            .unwrap();
        let keyboard = File::from(ours);
        let screen = Arc::<Mutex<String>>::default();
        let (mut reader, written) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading fails when no program has the terminal any more.
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                written.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        let adopted = Some(Adopted::new(program.id()));
        Self { keyboard, screen, program, adopted }
    }

    pub fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        reaper::signal(self.program.id(), signal);
    }

    /// Everything that was written so far.
    pub fn screen(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until this text was written.
    pub async fn shows(&self, text: &str) {
        until(text, async || self.screen().contains(text)).await;
    }

    /// True if the terminal sends whole lines, as at the start; false in raw mode.
    pub fn is_line_mode(&self) -> bool {
        tcgetattr(&self.keyboard).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end of the program.
    pub async fn ends_with(&mut self, code: i32) {
        let id = self.program.id();
        until("the end of the program", async || reaper::has_ended(id)).await;
        drop(self.adopted.take());
        assert_eq!(self.program.wait().unwrap().code(), Some(code), "{}", self.screen());
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
