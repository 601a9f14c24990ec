//! Mistakes in TLS setups. Each mistake has its own message, over both transports.

use bed::secs;
use distlock::{Error, Tls};
use distlock_support::RedisServer;

use crate::pki::{Authority, When};
use crate::rig::{BOTH, PASSWORD, Secure, brisk, failure, message, refusal, refusal_at_once, works};

/// The messages. No message is a part of the message for another case.
const WRONG: [(&str, &str); 9] = [
    ("authority", "signed by an authority that is not trusted"),
    ("expired", "the server's certificate has expired"),
    ("future", "not valid yet"),
    ("name", "certificate is not for 127.0.0.1, but for"),
    ("no client certificate", "asks for a client certificate, and there is none"),
    ("stranger's client certificate", "refuses the client certificate"),
    ("plain server", "does not speak TLS at this port"),
    ("plain client", "use rediss://"),
    ("silent", "does not answer to the handshake"),
];

#[track_caller]
fn is(case: &str, message: &str) {
    let fits: Vec<_> = WRONG.iter().filter(|(_, part)| message.contains(part)).map(|(case, _)| *case).collect();
    assert_eq!(fits, [case], "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_wrong_certificate_has_a_message_of_its_own() {
    let right = Secure::start("IP:127.0.0.1", When::Now, "no");
    let expired = Secure::start("IP:127.0.0.1", When::Past, "no");
    let future = Secure::start("IP:127.0.0.1", When::Future, "no");
    let other_name = Secure::start("DNS:redis.internal,DNS:localhost", When::Now, "no");
    let stranger = Authority::new("stranger");
    // An authority with the same name as the right one.
    let double = Authority::new("ours");
    for direct in BOTH {
        works(right.builder(direct, right.tls())).await;
        for trusted in [&stranger, &double] {
            let file = trusted.file("ca.pem");
            // The error is immediate, because waiting does not help.
            let said = refusal_at_once(right.builder(direct, Tls::new().ca_file(&file))).await.to_string();
            is("authority", &said);
            assert!(said.contains(file.to_str().unwrap()), "{said}");
        }
        is("expired", &message(expired.builder(direct, expired.tls())).await);
        is("future", &message(future.builder(direct, future.tls())).await);
        let said = message(other_name.builder(direct, other_name.tls())).await;
        is("name", &said);
        assert!(said.contains("redis.internal, localhost"), "{said}");
        // The platform's authorities did not sign our certificate. If the platform has no authorities, the error says
        // so.
        let error = refusal(right.builder(direct, Tls::new())).await;
        match &error {
            Error::Connection { message, .. } => is("authority", message),
            Error::Config { what } => assert!(what.contains("SSL_CERT_FILE"), "{what}"),
            error => panic!("{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_is_checked_against_server_name() {
    let server = Secure::start("DNS:redis.internal,IP:10.1.2.3", When::Now, "no");
    for direct in BOTH {
        works(server.builder(direct, server.tls().server_name("redis.internal"))).await;
        works(server.builder(direct, server.tls().server_name("10.1.2.3"))).await;
        let said = message(server.builder(direct, server.tls().server_name("other.internal"))).await;
        assert!(said.contains("not for other.internal, but for redis.internal, 10.1.2.3"), "{said}");
        for odd in ["", "no name", "a..b"] {
            let error = refusal(server.builder(direct, server.tls().server_name(odd))).await;
            assert!(matches!(&error, Error::Config { what } if what.contains("TLS")), "{odd:?}: {error:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificate_is_sent_when_server_requests_it() {
    let server = Secure::start("IP:127.0.0.1", When::Now, "yes");
    let (certificate, key) = server.authority.sign("client-", "DNS:client", When::Now);
    let stranger = Authority::new("stranger");
    let (strange, strange_key) = stranger.sign("client-", "DNS:client", When::Now);
    let (old, old_key) = server.authority.sign("old-", "DNS:client", When::Past);
    for direct in BOTH {
        works(server.builder(direct, server.tls().client_certificate(&certificate, &key))).await;
        is("no client certificate", &message(server.builder(direct, server.tls())).await);
        for (certificate, key) in [(&strange, &strange_key), (&old, &old_key)] {
            let tls = server.tls().client_certificate(certificate, key);
            is("stranger's client certificate", &message(server.builder(direct, tls)).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_tls_on_one_side_is_reported() {
    let server = Secure::start("IP:127.0.0.1", When::Now, "no");
    let plain = RedisServer::builder().password(PASSWORD).start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for direct in BOTH {
        let to_plain = brisk(&format!("rediss://127.0.0.1:{}", plain.port()), direct).password(PASSWORD);
        is("plain server", &message(to_plain.tls(server.tls())).await);
        let to_tls = brisk(&format!("redis://127.0.0.1:{}", server.port.number()), direct).password(PASSWORD);
        is("plain client", &message(to_tls).await);
        let to_silent = brisk(&format!("rediss://{}", silent.local_addr().unwrap()), direct).tls(server.tls());
        // Over fred, a timeout is the only sign of the mistake.
        let error = if direct { refusal(to_silent).await } else { failure(to_silent, secs(6)).await };
        match error {
            Error::Connection { message, .. } if direct => is("silent", &message),
            Error::Timeout { .. } if !direct => {}
            error => panic!("{error:?}"),
        }
    }
}

#[tokio::test]
async fn unusable_tls_files_are_refused_at_once() {
    let server = Secure::start("IP:127.0.0.1", When::Now, "no");
    let at = |name: &str| server.authority.file(name);
    let (certificate, key) = server.authority.sign("client-", "DNS:client", When::Now);
    let (_, other_key) = server.authority.sign("other-", "DNS:client", When::Now);
    std::fs::write(at("empty.pem"), "").unwrap();
    std::fs::write(at("text.pem"), "-----BEGIN CERTIFICATE-----\nhunter2").unwrap();
    std::fs::write(at("odd.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let cases = [
        (Tls::new().ca_file(at("none.pem")), at("none.pem"), "cannot be read: No such file"),
        (Tls::new().ca_file(at("empty.pem")), at("empty.pem"), "has no certificate"),
        (Tls::new().ca_file(at("text.pem")), at("text.pem"), "is no PEM"),
        (Tls::new().ca_file(at("odd.pem")), at("odd.pem"), "no certificate that can be used"),
        (Tls::new().ca_file(&key), key.clone(), "has no certificate"),
        (server.tls().client_certificate(at("none.pem"), &key), at("none.pem"), "cannot be read"),
        (server.tls().client_certificate(&certificate, at("none.pem")), at("none.pem"), "cannot be read"),
        (server.tls().client_certificate(&certificate, &certificate), certificate.clone(), "has no private key"),
        (
            server.tls().client_certificate(&certificate, &other_key),
            other_key.clone(),
            "is not that of the certificate",
        ),
        (server.tls().client_certificate(at("odd.pem"), &key), at("odd.pem"), "cannot be used"),
    ];
    for direct in BOTH {
        for (tls, file, part) in &cases {
            let error = refusal_at_once(server.builder(direct, tls.clone())).await;
            let Error::Config { what } = &error else { panic!("{error:?}") };
            assert!(
                what.contains(part) && what.contains(file.to_str().unwrap()) && !what.contains("hunter2"),
                "{what}"
            );
        }
    }
}

#[tokio::test]
async fn tls_options_with_plain_url_are_refused() {
    for url in ["redis://127.0.0.1:1", "unix:///no/such.sock", "redis-cluster://127.0.0.1:1", "valkey://127.0.0.1:1"] {
        for direct in BOTH {
            let error = refusal(brisk(url, direct).tls(Tls::new())).await;
            assert!(matches!(&error, Error::Config { what } if what.contains("use rediss://")), "{url}: {error:?}");
            let error = brisk(url, direct).tls(Tls::new()).connect_lazily().await.unwrap_err();
            assert!(matches!(&error, Error::Config { what } if what.contains("use rediss://")), "{url}: {error:?}");
        }
    }
}
