//! The server fixture against real servers: data, signals, ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use distlock_support::child::{self, Child};
use distlock_support::{Admin, RedisServer, reaper};

async fn set_and_restart(aof: bool) -> Option<String> {
    let server = RedisServer::builder().aof(aof).start();
    let admin = Admin::connect(&server).await;
    admin.cmd::<()>(&["SET", "k", "v"]).await;
    let (port, pid) = (server.port(), server.pid());
    server.kill9();
    assert!(reaper::has_ended(pid));
    assert!(TcpStream::connect(server.addr()).is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    admin.cmd(&["GET", "k"]).await
}

#[tokio::test]
async fn data_survives_restart_only_with_aof() {
    assert_eq!(set_and_restart(true).await.as_deref(), Some("v"));
    assert_eq!(set_and_restart(false).await, None);
}

#[tokio::test]
async fn drop_ends_the_server_and_removes_its_directory() {
    let server = RedisServer::start();
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    assert!(dir.join("redis.log").exists());
    server.stop();
    drop(server);
    assert!(reaper::has_ended(pid));
    assert!(!dir.exists());
}

#[tokio::test]
async fn frozen_server_is_silent_until_it_resumes() {
    let server = RedisServer::start();
    let mut stream = TcpStream::connect(server.addr()).expect("connect");
    server.stop();
    stream.write_all(b"PING\r\n").expect("write");
    let short = Some(Duration::from_millis(200));
    stream.set_read_timeout(short).expect("timeout");
    let mut reply = [0; 7];
    assert!(stream.read(&mut reply).is_err());
    server.cont();
    stream.set_read_timeout(None).expect("timeout");
    stream.read_exact(&mut reply).expect("read");
    assert_eq!(&reply, b"+PONG\r\n");
}

#[tokio::test]
async fn password_config_and_arguments_take_effect() {
    let server = RedisServer::builder()
        .password("p@ss/1")
        .config("notify-keyspace-events Kx\n")
        .arg("--maxmemory", "7mb")
        .start();
    let admin = Admin::connect(&server).await;
    let set: Vec<String> = admin.cmd(&["CONFIG", "GET", "maxmemory"]).await;
    assert_eq!(set, ["maxmemory", "7340032"]);
    let set: Vec<String> = admin.cmd(&["CONFIG", "GET", "notify-keyspace-events"]).await;
    assert_eq!(set[1], "xK");
    let mut stream = TcpStream::connect(server.addr()).expect("connect");
    stream.write_all(b"PING\r\nQUIT\r\n").expect("write");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("read");
    assert!(reply.starts_with("-NOAUTH"), "{reply}");
}

#[test]
#[should_panic(expected = "Bad directive")]
fn bad_option_is_reported() {
    RedisServer::builder().arg("--nonsense", "1").start();
}

#[test]
fn servers_started_at_once_use_different_ports() {
    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(RedisServer::start)).collect();
    let servers: Vec<_> = threads.into_iter().map(|t| t.join().expect("start")).collect();
    let mut ports: Vec<_> = servers.iter().map(RedisServer::port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 8);
}

#[tokio::test]
async fn fails_beside_a_server() {
    if !child::is_child() {
        return;
    }
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    admin.cmd::<()>(&["HSET", "held", "somebody:1", "2"]).await;
    panic!("on purpose");
}

#[tokio::test]
async fn failed_test_prints_keys_of_its_server() {
    let mut failed = Child::spawn("server::fails_beside_a_server", &[]);
    assert_eq!(failed.line().await, None);
    let shown = failed.output();
    assert!(shown.lines().any(|line| line.contains("held") && line.contains("somebody:1")), "{shown}");
}

#[test]
fn child_with_servers_and_folders() {
    if !child::is_child() {
        return;
    }
    child::init();
    let [running, frozen, killed] = [(); 3].map(|()| RedisServer::start());
    frozen.stop();
    killed.kill9();
    let (folder, dropped) = (reaper::Folder::new(), reaper::Folder::new());
    drop(dropped);
    let dirs = [running.dir(), frozen.dir(), killed.dir(), folder.path()].map(|dir| dir.display().to_string());
    child::say(&format!("{} {} {}", running.pid(), frozen.pid(), dirs.join(" ")));
    loop {
        std::thread::park();
    }
}

/// A server that is down for the moment still has its directory.
#[tokio::test]
async fn servers_and_folders_end_with_their_killed_test_process() {
    crate::end_with_their_process("server::child_with_servers_and_folders").await;
}
