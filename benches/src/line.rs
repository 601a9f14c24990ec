//! A line to a server that adds latency and can be cut. It is more exact than the tests' proxy, whose timer counts in
//! whole milliseconds: here a thread sleeps for each direction of each connection.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A port whose connections lead to a server. Its threads end with their connections and with this process.
#[derive(Debug)]
pub struct Line {
    port: u16,
    cut: Arc<AtomicBool>,
}

impl Line {
    /// Opens a line on which each byte takes `each_way` in each direction.
    pub fn to(server: SocketAddr, each_way: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.unwrap_or_else(|error| panic!("a port for a line: {error}"));
        let port = listener.local_addr().map_or(0, |address| address.port());
        let cut = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&cut);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(server) else { continue };
                for (from, to) in [(&client, &upstream), (&upstream, &client)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    carry(from, to, each_way, Arc::clone(&state));
                }
            }
        });
        Self { port, cut }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Loses everything from now on, without notice to either end.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, takes: Duration, cut: Arc<AtomicBool>) {
    let (under_way, arrivals) = mpsc::channel::<(Instant, Vec<u8>)>();
    let _ = to.set_nodelay(true);
    std::thread::spawn(move || {
        let mut bytes = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let sent = cut.load(Ordering::Relaxed)
                || under_way.send((Instant::now() + takes, bytes[..count].to_vec())).is_ok();
            if !sent {
                break;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in arrivals {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
