//! No `Debug` output or error contains a secret. `ears.rs` checks the logs of all tests in this binary.

use std::error::Error as _;

use distlock::{Credentials, Error};

use crate::pki::{Authority, When};
use crate::rig::{BOTH, Secure, message, refusal};
use crate::{ears, rig};

fn look_through(what: &impl std::fmt::Debug) {
    ears::look_through("Debug", &format!("{what:?} {what:#?}"));
}

fn error(error: &Error) {
    ears::look_through("an error", &format!("{error} {error:#}"));
    look_through(error);
    let mut source = error.source();
    while let Some(error) = source {
        ears::look_through("the source of an error", &format!("{error} {error:?}"));
        source = error.source();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_passwords_appear_in_no_error_debug_output_or_log() {
    let server = Secure::start("IP:127.0.0.1", When::Now, "yes");
    let (certificate, key) = server.authority.sign("client-", "DNS:client", When::Now);
    let (strange, strange_key) = Authority::new("stranger").sign("client-", "DNS:client", When::Now);
    let before = ears::heard();
    for direct in BOTH {
        let tls = server.tls().client_certificate(&certificate, &key);
        look_through(&tls);
        let builder = server.builder(direct, tls.clone());
        look_through(&builder);
        let builder =
            builder.credentials(|| async { Ok::<_, std::io::Error>(Credentials::new("default", rig::PASSWORD)) });
        look_through(&builder);
        look_through(&(Credentials::new(rig::PASSWORD, rig::PASSWORD), Credentials::password(rig::PASSWORD)));
        let client = builder.connect().await.unwrap();
        let guard = client.reentrant("a").lock().await.unwrap();
        look_through(&(&client, client.options(), &guard));
        guard.unlock().await.unwrap();
        rig::end([client]).await;

        error(&refusal(server.builder(direct, server.tls())).await);
        error(&refusal(server.builder(direct, server.tls().client_certificate(&strange, &strange_key))).await);
        error(&refusal(server.builder(direct, server.tls().client_certificate(&certificate, &strange_key))).await);
        // The files are swapped by mistake.
        error(&refusal(server.builder(direct, server.tls().client_certificate(&key, &certificate))).await);
        error(&refusal(server.builder(direct, server.tls().ca_file(&key))).await);
        error(&refusal(server.builder(direct, tls.clone()).password("hunter2 but wrong")).await);
        error(&refusal(server.builder(direct, tls.clone().server_name("other"))).await);
        ears::look_through("a message", &message(server.builder(direct, tls.server_name("other"))).await);
    }
    let after = ears::heard();
    assert!(
        after.0 > before.0 && after.1 > before.1 + 100,
        "the ears are deaf: {before:?} lines before, {after:?} after"
    );
    ears::look_through("the server's log", &server.server.log());
}

#[test]
fn secret_is_detected_in_each_form() {
    let authority = Authority::new("control");
    let (_, key) = authority.sign("x-", "DNS:x", When::Now);
    let text = std::fs::read_to_string(key).unwrap();
    assert!(ears::shows(&text) && ears::shows(&format!("{text:?}")));
    assert!(ears::shows("password=hunter2!") && ears::shows(&format!("{:?}", b"hunter2")));
    assert!(!ears::shows(&std::fs::read_to_string(authority.file("x-cert.pem")).unwrap()), "what is public");
}
