//! `rediss://`: a server and a cluster with certificates that are made for the test. The binary contains both crypto
//! providers of rustls, like a program in which a second crate uses rustls.
//!
//! The environment sets the trusted certificates, so each of these tests runs a second test in a separate process.

#![cfg_attr(
    feature = "native-tls",
    allow(dead_code, reason = "words of rustls, and files read anew, are told of by it alone")
)]

mod cluster;
mod credentials;
mod ears;
mod load;
#[cfg(feature = "native-tls")]
mod native;
mod pki;
mod rig;
#[cfg(not(feature = "native-tls"))]
mod rotation;
mod secrets;
#[cfg(not(feature = "native-tls"))]
mod sentinel;
#[cfg(not(feature = "native-tls"))]
mod wrong;
#[cfg(feature = "redisson-yaml")]
mod yaml;

use std::path::Path;
use std::process::Command;
#[cfg(not(feature = "native-tls"))]
use std::sync::Arc;

use bed::PATIENCE;
use distlock::{Builder, Client, Error};
use distlock_support::reaper;
use pki::{Authority, When};
use rustls::crypto::CryptoProvider;

const URL: &str = "DISTLOCK_TEST_URL";

/// An authority with a certificate for these names. `stranger.pem` is another authority.
fn certificates(names: &str) -> Authority {
    let authority = Authority::new("test");
    authority.server(names, When::Now);
    std::fs::copy(Authority::new("stranger").file("ca.pem"), authority.file("stranger.pem")).unwrap();
    authority
}

/// Runs an ignored test in a new process that trusts this certificate file.
fn have(trusted: &Path, url: &str, test: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).env("SSL_CERT_FILE", trusted);
    let ran = reaper::output(command.env_remove("SSL_CERT_DIR").env(URL, url));
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    ears::look_through("the output of a test", &said);
    assert!(ran.status.success() && said.contains("1 passed"), "{test}, trusting {}: {said}", trusted.display());
}

fn url() -> String {
    ears::listen();
    std::env::var(URL).unwrap()
}

/// A client of the outer test's server. Only a message wakes its waiters.
fn outer() -> Builder {
    let hour = bed::secs(3600);
    Client::builder(&url())
        .command_timeout(bed::secs(10))
        .connect_timeout(PATIENCE)
        .configure(|options| options.poll_cap = hour)
}

#[cfg(not(feature = "native-tls"))]
#[test]
fn n21_trusted_servers_are_used_with_several_providers_in_the_build_and_others_refused() {
    let server = rig::Secure::of(Arc::new(certificates("IP:127.0.0.1,DNS:localhost")), "no");
    for (trusted, host, test) in [
        ("ca.pem", "127.0.0.1", "inner_locks_wake_waiters"),
        ("ca.pem", "localhost", "inner_locks_wake_waiters"),
        ("ca.pem", "127.0.0.1", "inner_crypto_provider_of_program_is_preferred"),
        ("stranger.pem", "127.0.0.1", "inner_server_certificate_is_refused"),
        ("no-such.pem", "127.0.0.1", "inner_missing_trust_file_is_refused"),
    ] {
        let url = format!("rediss://:{}@{host}:{}", rig::PASSWORD.replace(' ', "%20"), server.port.number());
        have(&server.authority.file(trusted), &url, test);
    }
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_locks_wake_waiters() {
    let (client, other) = (outer().connect().await.unwrap(), outer().connect().await.unwrap());
    // The library does not install rustls' default provider for the program.
    assert!(CryptoProvider::get_default().is_none());
    rig::wakes(&client, &other, "x").await;
    rig::end([client, other]).await;
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_crypto_provider_of_program_is_preferred() {
    // The provider has no cipher suites, so its use fails.
    let mut useless = rustls::crypto::aws_lc_rs::default_provider();
    useless.cipher_suites.clear();
    useless.install_default().unwrap();
    let refused = outer().connect().await;
    assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_server_certificate_is_refused() {
    let refused = outer().connect().await;
    let Err(Error::Connection { message, .. }) = &refused else { panic!("{refused:?}") };
    assert!(message.to_lowercase().contains("cert"), "{message}");
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_missing_trust_file_is_refused() {
    let refused = outer().connect().await;
    let Err(Error::Config { what }) = &refused else { panic!("{refused:?}") };
    assert!(what.contains("SSL_CERT_FILE") && !what.contains("secret"), "{what}");
}
