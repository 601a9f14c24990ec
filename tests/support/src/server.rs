//! A real `redis-server` for each test, with its own port and directory. It ends with the test process.

mod builder;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::process::Signal;

use crate::ports::Port;
use crate::reaper::Folder;
use crate::{reaper, state};
pub use builder::Builder;

const START_ATTEMPTS: usize = 20;
const START_WITHIN: Duration = Duration::from_secs(90);

enum Refused {
    PortTaken(String),
    Other(String),
}

/// A running `redis-server` on the loopback interface.
///
/// Dropping it kills the server and removes its directory. When the test process is killed, a watchdog does both (see
/// [`crate::reaper`]).
#[derive(Debug)]
pub struct RedisServer {
    options: Builder,
    program: PathBuf,
    port: Port,
    dir: Folder,
    child: Mutex<Option<Child>>,
}

impl RedisServer {
    /// Starts a server without persistence.
    pub fn start() -> Self {
        Self::builder().start()
    }

    pub fn builder() -> Builder {
        Builder::default()
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// `redis://127.0.0.1:port`, with the password, if any.
    pub fn url(&self) -> String {
        let auth = match &self.options.password {
            Some(p) => format!(":{}@", utf8_percent_encode(p, NON_ALPHANUMERIC)),
            None => String::new(),
        };
        format!("redis://{auth}127.0.0.1:{}", self.port())
    }

    /// The directory of the server's files, with `redis.log`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn pid(&self) -> u32 {
        match self.child.lock().as_ref() {
            Some(child) => child.id(),
            None => panic!("redis-server on port {} is not running", self.port()),
        }
    }

    /// Kills the server by SIGKILL and waits for its end. Does nothing if it is dead.
    pub fn kill9(&self) {
        let Some(mut child) = self.child.lock().take() else {
            return;
        };
        // The server is not reaped yet, so the pid is still its own. SIGKILL also ends a stopped process.
        let _ = child.kill();
        reaper::release(child.id());
        let _ = child.wait();
    }

    /// Restarts the server on the same port and directory. Kills it first if it runs. Its data survives only with
    /// [`Builder::aof`].
    pub fn restart(&self) {
        self.kill9();
        let mut why = String::new();
        for _ in 0..START_ATTEMPTS {
            match self.launch() {
                Ok(()) => return,
                Err(Refused::PortTaken(w)) => why = w,
                Err(Refused::Other(w)) => panic!("redis-server did not restart: {w}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("redis-server did not get its port {} back: {why}", self.port());
    }

    /// Freezes the server (SIGSTOP) and waits until it stands still: connections stay open, but nothing is answered.
    pub fn stop(&self) {
        reaper::freeze(self.pid());
    }

    pub fn cont(&self) {
        reaper::signal(self.pid(), Signal::CONT);
    }

    /// The server's log since its first start.
    pub fn log(&self) -> String {
        std::fs::read(self.dir.path().join("redis.log"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    fn launch(&self) -> Result<(), Refused> {
        let logged = self.log().len();
        let mut child = self.spawn();
        // The shell waits for this line before it becomes redis-server, so the watchdog always knows the process.
        reaper::adopt(child.id());
        if let Some(mut stdin) = child.stdin.take()
            && let Err(e) = stdin.write_all(b"go\n")
        {
            panic!("the launcher of redis-server died: {e}");
        }
        let pid = child.id();
        *self.child.lock() = Some(child);
        let deadline = Instant::now() + START_WITHIN;
        loop {
            let status = self.child.lock().as_mut().map(Child::try_wait);
            let new_log = self.log().split_off(logged);
            if let Some(Ok(Some(status))) = status {
                reaper::release(pid);
                *self.child.lock() = None;
                let why = format!("{status}; its log: {new_log}");
                return Err(if new_log.contains("Address already in use") {
                    Refused::PortTaken(why)
                } else {
                    Refused::Other(why)
                });
            }
            if self.answers(pid, &new_log) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Refused::Other(format!("no answer within {START_WITHIN:?}; its log: {new_log}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn spawn(&self) -> Child {
        let path = self.dir.path().join("redis.log");
        let log = File::options().create(true).append(true).open(&path);
        let log = log.unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
        let errors = log.try_clone().unwrap_or_else(|e| panic!("cannot share {}: {e}", path.display()));
        let mut command = Command::new("sh");
        command.args(["-c", r#"read -r go || exit 1; exec "$0" "$@" </dev/null"#]);
        command.arg(&self.program);
        command.envs(self.options.env.iter().map(|(name, value)| (name, value)));
        if self.options.config.is_some() {
            command.arg(self.dir.path().join("redis.conf"));
        }
        command
            .args(["--port", &self.port().to_string()])
            .args(["--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", if self.options.aof { "yes" } else { "no" }])
            .arg("--dir")
            .arg(self.dir.path());
        if let Some(password) = &self.options.password {
            command.args(["--requirepass", password]);
        }
        command
            .args(&self.options.args)
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {}: {e}", self.program.display()))
    }

    /// Whether this server answers PING, and not another server on the same port.
    fn answers(&self, pid: u32, log: &str) -> bool {
        let reply = self.ask().unwrap_or_default();
        if reply.contains("+PONG\r\n") && reply.contains(&format!("process_id:{pid}\r\n")) {
            return true;
        }
        // Users and TLS set by extra options may lock this probe out. Then the log decides.
        let kept_out = reply.is_empty() || reply.contains("-NOAUTH") || reply.contains("-NOPERM");
        kept_out && ["Ready to accept connections", "Sentinel ID is"].iter().any(|ready| log.contains(ready))
    }

    fn ask(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.addr())?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut request = String::new();
        if let Some(p) = &self.options.password {
            request = format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{p}\r\n", p.len());
        }
        request += "PING\r\nINFO server\r\nQUIT\r\n";
        stream.write_all(request.as_bytes())?;
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply)?;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }
}

impl Drop for RedisServer {
    /// After a failed test, prints the state of its servers.
    fn drop(&mut self) {
        if std::thread::panicking() && self.child.lock().is_some() {
            match state::of(&self.url()) {
                Ok(state) => {
                    println!(
                        "the server at port {}, after the failed test has dropped its guards:\n{state}",
                        self.port()
                    )
                }
                Err(error) => println!("the server at port {} does not say what it holds: {error}", self.port()),
            }
        }
        self.kill9();
    }
}

fn find_program() -> PathBuf {
    if let Some(path) = ["DISTLOCK_SERVER", "REDIS_SERVER"].iter().find_map(std::env::var_os) {
        return path.into();
    }
    std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .map(|dir| dir.join("redis-server"))
        .find(|path| path.is_file())
        .unwrap_or_else(|| {
            panic!(
                "redis-server not found: apt-get install redis-server, or ./x test gets it \
                 (or name it in DISTLOCK_SERVER)"
            )
        })
}
