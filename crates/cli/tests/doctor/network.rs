//! Settings of connections, a full server, wrong clocks and slow networks.

use std::net::TcpStream;
use std::time::Duration;

use distlock_support::{Clock, Mode, Proxy};

use crate::report::{Report, alone, doctor, doctor_with, info, start, until};

/// Checks a sound server after this change of a setting.
async fn with_setting(name: &str, value: &str) -> Report {
    let (server, admin) = start(alone()).await;
    admin.config_set(name, value).await;
    doctor(&server.url()).await
}

#[tokio::test]
async fn settings_that_close_or_keep_connections_are_found() {
    for (name, value, id, severity) in [
        ("timeout", "300", "idle-timeout", "note"),
        ("timeout", "10", "idle-timeout", "risk"),
        ("tcp-keepalive", "0", "keepalive-off", "note"),
        ("client-output-buffer-limit", "pubsub 65536 0 0", "message-buffer-small", "risk"),
        ("lua-time-limit", "0", "script-time-limit", "risk"),
    ] {
        let report = with_setting(name, value).await;
        report.assert_finds(&["no-replica", id]);
        report.assert_severity(id, severity);
    }
}

#[tokio::test]
async fn server_with_few_connections_left_is_found() {
    let (server, admin) = start(alone().arg("--maxclients", "100")).await;
    let idle: Vec<_> = (0..91).map(|_| TcpStream::connect(server.addr()).unwrap()).collect();
    until("idle connections", async || info(&admin, "clients", "connected_clients").await >= Some(92)).await;
    let report = doctor(&server.url()).await;
    drop(idle);
    report.assert_finds(&["no-replica", "connections-nearly-used-up"]);
    report.assert_severity("connections-nearly-used-up", "risk");
}

#[tokio::test]
async fn wrong_clock_of_the_server_is_found() {
    let Some(clock) = Clock::new() else { return };
    let server = clock.of(alone()).start();
    clock.shift(60_000);
    let report = doctor(&server.url()).await;
    report.assert_finds(&["no-replica", "clock-offset"]);
    report.assert_severity("clock-offset", "risk");
}

#[tokio::test]
async fn slow_network_is_found() {
    let server = alone().start();
    let proxy = Proxy::start(server.addr());
    proxy.set_upstream_mode(Mode::Delay(Duration::from_millis(60)));
    let report = doctor_with(&proxy.url(), &["--latency-limit", "50"]).await;
    report.assert_finds(&["no-replica", "latency"]);
    report.assert_severity("latency", "risk");
}
